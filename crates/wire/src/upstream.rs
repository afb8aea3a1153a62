//! OpenAI's words as a client speaks them: a turn becomes a request to somebody else's server ([`request`]).
//!
//! Servers differ in what they leave out, so everything is read with patience: a member of an unexpected type is as good
//! as absent. No sockets here: who connects, waits and gives up is the caller's part.

pub use models::models;
pub use request::request;

mod models;
mod request;
