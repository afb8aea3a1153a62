//! Trunkline's domain types, and every decision that can be made from them alone.
//!
//! This crate is pure: no tokio, no files, no processes, no clock.
//!
//! - A [`turn::Turn`] is one request to an agent.
//! - A [`provider::Provider`] is a recipe: how to start a CLI for a turn. [`live`] is the conversation with a CLI that is
//!   kept for several turns.
//! - A [`parse::Decoder`] turns the output of a CLI into [`event::Event`]s.
//! - A [`failure::Failure`] describes an error, and its category decides whether a retry or a fallback may follow.
//! - [`vocabulary`] holds the small types that the other modules share. It imports none of them.

pub mod ansi;
pub mod api;
pub mod conversation;
pub mod event;
pub mod failure;
pub mod limits;
mod lines;
pub mod live;
pub mod mcp;
pub mod mcp_server;
pub mod model;
pub mod near;
pub mod parse;
pub mod phase;
pub mod prompt;
pub mod protocol;
pub mod provider;
pub mod secret;
pub mod side_request;
pub mod span;
pub mod turn;
pub mod url_pattern;
pub mod vocabulary;
