//! Calls OpenAI-compatible HTTP services: sends one request and returns its answer as events.
//!
//! This crate handles connections and timeouts. Requests and answers are encoded and parsed by
//! [`trunkline_wire::upstream`]. It is a crate of its own to keep TLS out of all others.
//!
//! ```no_run
//! # async fn example() {
//! # use std::time::Duration;
//! use trunkline_core::{api::Api, turn::Turn};
//! use trunkline_upstream::{Upstream, UpstreamTimeouts};
//!
//! let api = Api { name: "ollama".into(), base_url: "http://localhost:11434/v1".into(), key: None };
//! let body = trunkline_wire::upstream::request(&Turn::default(), None, Some("llama3.2"));
//! let timeouts = UpstreamTimeouts::in_all(Duration::from_secs(120));
//! let mut call = Upstream::new().call(&api, body, &[], timeouts, String::from("the prompt").into());
//! while let Some(event) = call.next().await {
//!     println!("{event:?}");
//! }
//! # }
//! ```

pub use call::UpstreamCall;
pub use client::{RequestFacts, Upstream, UpstreamTimeouts};

mod address;
mod call;
mod client;
mod fault;
