//! The HTTP surface.

mod answer;
pub mod auth;
mod body;
mod config;
mod door;
mod reply;
mod stall;

pub use config::{Config, Limits};
pub use door::{Door, Events};

/// The type of every body we send.
type HttpResponse = axum::http::Response<axum::body::Body>;
