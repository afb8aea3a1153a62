//! Real files, real processes, real kills.

#![cfg(test)] // all of this is; it says so once more for clippy's `allow-unwrap-in-tests`

mod archive;
mod bridge;
mod journal;
mod migration;
mod model;
mod opening;
mod processes;
mod prune;
mod runs;
mod session;
mod session_turn;
mod world;
