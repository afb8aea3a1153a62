//! The Discord bridge: a channel, a thread or a direct message is a conversation with a coding agent.
//!
//! Each message is checked against [`Allow`], recorded in the store's inbox, and answered by a [`ChatBackend`]. The
//! messages of a channel are answered one after the other. Decisions are pure functions, tested with tables and properties
//! ([`split()`]); the code that talks to Discord is thin. [`run`] is the entry point.
//!
//! Each message is answered exactly once, even if the process is killed: see `answer.rs`.

mod allow;
mod answer;
mod backend;
mod bridge;
mod bridge_store;
mod catch_up;
mod channel_state;
mod command;
mod draft;
mod engine_backend;
mod files;
mod gateway;
mod incoming;
mod layout;
mod listener;
mod rest;
mod settings;
mod shared;
mod snowflake;
mod split;
mod token;
mod wire;

pub use allow::{Allow, Speaker};
pub use backend::{
    BackendRequest, ChatBackend, ChatBackends, EventResult, HistoryMessage, InvalidBackend, Partial, Partials,
};
pub use bridge::{BridgeError, BridgeShutdown, run};
pub use command::BridgeCommand;
pub use engine_backend::EngineBackend;
pub use files::forget_files;
pub use settings::DiscordSettings;
pub use snowflake::Snowflake;
pub use split::{MAX_MESSAGE_UNITS, MessagePart, split};
pub use token::Token;
