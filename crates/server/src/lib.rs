//! The HTTP surface.

pub mod auth;
mod body;
mod config;
mod stall;

pub use config::{Config, Limits};
