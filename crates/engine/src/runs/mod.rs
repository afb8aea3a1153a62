//! Runs as things: a name, a log on disk that outlives the process, others who may look on, and a way to stop one.
//!
//! Whoever asked pulls his run, and every event is in its log before he sees it. Others read the log, never the run: a
//! slow reader slows nobody, and one who comes late misses nothing.

pub(crate) mod alive;
mod attached;
mod attempts;
mod detached;
mod diff;
mod driver;
pub(crate) mod entry;
mod follow;
pub(crate) mod gateway_process;
mod idempotency;
mod interrupted;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod masking;
mod queries;
mod start;
mod sweep;
mod sweep_state;

pub use attached::Run;
pub use diff::NoDiff;
pub use entry::{By, Entry};
pub use follow::{Follow, forget_logs};
pub use idempotency::{Joined, NotOnce, Once};
pub use queries::{Cancelled, NoRun};
pub use sweep::{run_seen, runs_seen};

pub(crate) use sweep_state::SweepState;

/// A new name. Names are in the order of time.
pub(crate) fn name() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// The run that an attempt belongs to: a second attempt is named after its run, with a number.
pub(crate) fn of_attempt(attempt: &str) -> &str {
    attempt.get(..uuid::fmt::Hyphenated::LENGTH).unwrap_or(attempt)
}
