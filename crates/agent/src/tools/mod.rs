//! The four tools, in a workspace, as far as its permissions go.

mod call;
mod cut;
mod place;
mod replace;
mod save;
mod transcript;
