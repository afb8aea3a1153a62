//! The real binary over real sockets: small shell scripts play the CLIs, with the bytes that real ones printed.

#![cfg(test)] // all of this is; it says so once more for clippy's `allow-unwrap-in-tests`

mod database;
#[cfg(feature = "discord")]
#[path = "../../../discord/tests/fake/mod.rs"]
#[expect(dead_code, reason = "the tests of the bridge itself use the rest")]
mod fake_discord;
mod http;
mod look;
mod service;
mod test_gateway;
mod trees;
mod tty;

mod again;
mod agent;
mod answers;
mod archive;
mod argv;
mod backend;
mod cancel;
mod chaos;
mod check;
mod commands;
mod config;
mod confined_git;
mod conversation;
#[cfg(feature = "discord")]
mod discord;
mod doctor;
mod documents;
mod errors;
mod interrupted;
mod keeping;
mod limits;
mod load;
mod memory;
mod metrics;
mod mock_llm;
mod output;
mod packaging;
mod page;
mod paths;
mod permission;
mod prompt;
mod protocol;
mod provider_check;
mod providers;
mod registry;
mod repository;
#[cfg(feature = "discord")]
mod requirements;
mod resume;
mod router;
mod runs;
mod runs_cli;
mod safety;
mod sandbox;
mod saving;
mod sessions;
mod shared;
mod silence;
mod spawn;
mod standing;
mod stop;
mod storage;
mod survivor;
mod transcripts;
mod upstream;
mod warm;
mod whole_output;
mod worktree;
