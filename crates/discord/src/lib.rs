//! The Discord bridge.

mod allow;
mod backend;
mod command;
mod draft;
mod engine_backend;
mod incoming;
mod layout;
mod snowflake;
mod split;
mod wire;

pub use allow::{Allow, Speaker};
pub use backend::{Ask, Backend, Backends, EventResult, Invalid, Partial, Partials, Said};
pub use engine_backend::EngineBackend;
pub use snowflake::Snowflake;
pub use split::{LIMIT, Part, split};
