//! Tests of the bridge with a fake Discord and a scripted backend.

#![cfg(test)] // for clippy's `allow-unwrap-in-tests`

mod bridge_test;
#[path = "../fake/mod.rs"]
mod fake;

mod answers;
mod channels;
mod connection;
mod exactly_once;
mod inbox;
mod rate_limits;
mod requirements;
