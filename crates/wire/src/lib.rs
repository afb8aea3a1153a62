//! OpenAI's words and ours.
//!
//! This crate is pure: a request body becomes a [`trunkline_core::turn::Turn`] ([`chat`], [`request`]), events become
//! one response ([`response`]), a stream of chunks ([`stream`], framed by [`sse`]) or what the chat page shows ([`page`]), and whatever goes wrong becomes a
//! status, headers and an error body ([`error`]). It knows no sockets, no clock and no randomness: ids and times are
//! handed in.

pub mod chat;
pub mod error;
pub mod object;
pub mod page;
pub mod request;
pub mod response;
pub mod sse;
pub mod stream;
mod told;
pub mod upstream;
