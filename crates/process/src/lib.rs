//! Starts processes and keeps them.

mod clock;
mod family;
mod janitor;
mod keeper;
mod link;
mod message;
mod output;
mod pipes;
mod pool;
mod run;
mod running;
mod spec;

pub use keeper::keeper_main;
pub use link::KeeperProgram;
pub use output::{Cut, Output};
pub use pool::Keepers;
pub use running::{Running, Step};
pub use spec::{Exit, LimitKind, Limits, SpawnError, Spec, StopSignal};
