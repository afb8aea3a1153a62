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
mod tty;

mod again;
mod agent;
mod answers;
mod archive;
mod argv;
mod backend;
mod cancel;
mod chaos;
mod chat_page;
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
mod history;
mod interrupted;
mod keeping;
mod limits;
mod load;
mod metrics;
mod mock_llm;
mod models_json;
mod output;
mod packaging;
mod paths;
mod permission;
mod prompt;
mod protocol;
mod provider_check;
mod provider_health;
mod providers;
#[cfg(feature = "discord")]
mod requirements;
mod resume;
mod router;
mod runs;
mod runs_cli;
mod sandbox;
mod security;
mod sessions;
mod shared_state;
mod shutdown;
mod spare_worktrees;
mod spawn;
mod storage;
mod takeover;
mod timeouts;
mod upstream;
mod warm;
mod whole_output;
mod worktree;
mod worktree_saving;
