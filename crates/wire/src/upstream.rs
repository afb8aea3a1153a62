//! OpenAI's words as a client speaks them: a turn becomes a request to somebody else's server ([`request`]), the bytes
//! of its answer become events ([`Reader`]), and an answer that is an error becomes a failure ([`failure`]).
//!
//! Servers differ in what they leave out, so everything is read with patience: a member of an unexpected type is as good
//! as absent. No sockets here: who connects, waits and gives up is the caller's part.

pub use failure::{Headers, failure};
pub use models::models;
pub use reader::Reader;
pub use request::{NEWER_LIMIT, request};

mod calls;
mod chunk;
mod failure;
mod models;
mod reader;
mod request;
