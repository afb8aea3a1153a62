//! Calls OpenAI-compatible HTTP services: one request, and its answer as events.
//!
//! This crate connects, waits and gives up; what the words on the wire mean is [`trunkline_wire::upstream`]'s part. It is
//! a crate of its own to keep TLS out of all the others.
//!
//! ```no_run
//! # async fn example() {
//! # use std::time::Duration;
//! use trunkline_core::{api::Api, turn::Turn};
//! use trunkline_upstream::{Patience, Upstream};
//!
//! let api = Api { name: "ollama".into(), base_url: "http://localhost:11434/v1".into(), key: None };
//! let body = trunkline_wire::upstream::request(&Turn::default(), None, Some("llama3.2"));
//! let patience = Patience::in_all(Duration::from_secs(120));
//! let mut call = Upstream::new().call(&api, body, &[], patience, "the prompt".into());
//! while let Some(event) = call.next().await {
//!     println!("{event:?}");
//! }
//! # }
//! ```

pub use call::Call;
pub use client::{Patience, Upstream};

mod address;
mod call;
mod client;
mod fault;
