//! Client side of OpenAI's API: a turn becomes a request to an upstream server ([`request`]), the bytes of its response
//! become events ([`UpstreamReader`]), and an error response becomes a failure ([`failure`]).
//!
//! Servers differ in what they omit, so parsing is lenient: a member of an unexpected type counts as absent. There are
//! no sockets here: connecting, timeouts and cancellation are up to the caller.

pub use embeddings::{check_embeddings, embeddings_request};
pub use failure::{UpstreamHeaders, failure};
pub use models::models;
pub use reader::UpstreamReader;
pub use request::{FUNCTIONS, NEWER_LIMIT, request};

mod calls;
mod choice;
mod chunk;
mod embeddings;
mod failure;
mod logprobs;
mod models;
mod reader;
mod request;
