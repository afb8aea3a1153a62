//! Integration tests: the real binary over real sockets. Small shell scripts stand in for the CLIs and replay recorded
//! output.

#![cfg(test)] // redundant in a test target, but clippy's `allow-unwrap-in-tests` needs it

mod database;
#[cfg(feature = "discord")]
#[path = "../../../discord/tests/fake/mod.rs"]
#[expect(dead_code, reason = "the tests of the bridge itself use the rest")]
mod fake_discord;
mod fake_llm;
mod http;
mod observe;
mod openapi;
mod test_gateway;
mod tty;

mod agent;
mod aliases;
mod architecture;
mod archive;
mod argv;
mod backend;
mod cancel;
mod chaos;
mod chat_content;
mod chat_page;
mod check;
mod client_tools;
mod commands;
mod completions;
mod config;
mod confined_git;
mod conversation;
mod database_failures;
mod deleted_index;
#[cfg(feature = "discord")]
mod discord;
mod doctor;
mod durability;
mod embeddings;
mod errors;
mod gemini;
mod history;
mod ignored_members;
mod killed_gateway;
mod limits;
mod load;
mod messages;
mod metrics;
mod mock_llm;
mod models_json;
mod ollama;
mod origins;
mod output;
mod packaging;
mod paths;
mod permission;
mod prompt;
mod protocol;
mod provider_check;
mod provider_health;
mod providers;
mod repeats;
mod repository;
#[cfg(feature = "discord")]
mod requirements;
mod responses;
mod resume;
mod retries;
mod router;
mod runs;
mod runs_cli;
mod sandbox;
mod security;
mod sessions;
mod shared_keys;
mod shared_state;
mod shutdown;
mod side_requests;
mod spare_worktrees;
mod spawn;
mod spec_compat;
mod storage;
mod structured_output;
mod takeover;
mod timeouts;
mod transcripts;
mod upstream;
mod warm;
mod whole_output;
mod worktree;
mod worktree_saving;
