//! The HTTP surface.

pub mod auth;
mod config;

pub use config::{Config, Limits};
