//! Tests with real files and real processes.

#![cfg(test)] // redundant here, but clippy's `allow-unwrap-in-tests` needs it

mod archive;
mod bridge;
mod fixture;
mod journal;
mod migration;
mod model;
mod opening;
mod processes;
mod prune;
mod runs;
mod session;
mod session_turn;
