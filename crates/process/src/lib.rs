//! Starts processes and keeps them.

mod family;
mod keeper;
mod message;
mod spec;

pub use keeper::keeper_main;
pub use spec::{Exit, LimitKind, Limits, SpawnError, Spec, StopSignal};
