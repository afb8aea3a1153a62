//! Translation between OpenAI's wire format and our own types.
//!
//! This crate is pure. A request body becomes a [`trunkline_core::turn::Turn`] ([`chat`], [`request`]). Events become
//! one response ([`response`]), a stream of chunks ([`stream`], framed by [`sse`]) or the frames of the chat page
//! ([`page`]). Other dialects build on [`body`] and [`narration`]. A failure becomes a status, headers and an error body ([`error`]). [`upstream`] is the other direction:
//! our requests to an OpenAI-compatible server, and its answers. There are no sockets, no clock and no randomness:
//! callers pass in ids and times.

pub mod answer_format;
pub mod body;
pub mod chat;
mod delivered;
pub mod error;
pub mod narration;
pub mod object;
pub mod page;
pub mod request;
pub mod response;
pub mod sse;
pub mod stream;
pub mod upstream;
