//! Starts processes and keeps them.

mod message;
mod spec;

pub use spec::{Exit, LimitKind, Limits, SpawnError, Spec, StopSignal};
