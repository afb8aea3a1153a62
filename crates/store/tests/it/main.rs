//! Tests with real files and real processes.

#![cfg(test)] // redundant here, but clippy's `allow-unwrap-in-tests` needs it

mod bridge;
mod bridge_file;
mod catch_up;
mod disk_full;
mod excess;
mod fixture;
mod history;
mod index;
mod migration;
mod model;
mod opening;
mod processes;
mod prune;
mod rebuild;
mod replaced_file;
mod runs;
mod session;
mod session_state;
mod torn;
mod upgrade;
mod version_2;
