//! The Discord bridge: a channel, a thread or a direct message is a conversation with a coding agent.
//!
//! A message is judged ([`Allow`]), put into the store's inbox, and answered by a [`Backend`], one message of a channel
//! after the other. Deciding is pure and tested as tables and properties
//! ([`split()`]); what talks to Discord is thin. [`run`] is the door.
//!
//! A message is answered once, whatever happens in between: see `answer.rs`.

mod allow;
mod answer;
mod backend;
mod bridge;
mod catch_up;
mod command;
mod desk;
mod draft;
mod engine_backend;
mod files;
mod gateway;
mod incoming;
mod layout;
mod ledger;
mod listener;
mod rest;
mod settings;
mod shared;
mod snowflake;
mod split;
mod token;
mod wire;

pub use allow::{Allow, Speaker};
pub use backend::{Ask, Backend, Backends, EventResult, Invalid, Partial, Partials, Said};
pub use bridge::{BridgeError, Stop, run};
pub use command::Command;
pub use engine_backend::EngineBackend;
pub use files::forget_files;
pub use settings::Settings;
pub use snowflake::Snowflake;
pub use split::{LIMIT, Part, split};
pub use token::Token;
