//! Real files, real processes, real kills.

#![cfg(test)] // all of this is; it says so once more for clippy's `allow-unwrap-in-tests`

mod archive;
mod bridge;
mod session;
mod world;
