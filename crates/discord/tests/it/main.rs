//! The bridge against a Discord on loopback, with a backend that does as it is told.

#![cfg(test)] // all of this is; it says so once more for clippy's `allow-unwrap-in-tests`

#[path = "../fake/mod.rs"]
mod fake;
mod world;

mod answers;
mod channels;
mod connection;
mod limits;
mod once;
mod record;
mod requirements;
