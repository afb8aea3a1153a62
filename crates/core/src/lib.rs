//! Trunkline's own words, and everything that can be decided from them alone.
//!
//! This crate is pure: no tokio, no files, no processes, no clock. A [`turn::Turn`] is what is asked of an agent, a
//! [`provider::Provider`] says how a CLI is asked, a [`parse::Decoder`] turns what it prints into [`event::Event`]s, and
//! a [`failure::Failure`] is what went wrong and what may follow.

pub mod ansi;
pub mod api;
pub mod conversation;
pub mod event;
pub mod failure;
pub mod limits;
pub mod lines;
pub mod live;
pub mod model;
pub mod near;
pub mod parse;
pub mod phase;
pub mod prompt;
pub mod protocol;
pub mod provider;
pub mod secret;
pub mod span;
pub mod turn;
pub mod vocabulary;
