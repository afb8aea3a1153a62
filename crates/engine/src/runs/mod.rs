//! Runs as things: a name, a log on disk that outlives the process, others who may look on, and a way to stop one.
//!
//! Whoever asked pulls his run, and every event is in its log before he sees it. Others read the log, never the run: a
//! slow reader slows nobody, and one who comes late misses nothing.

mod attached;
mod desk;
mod diff;
mod driven;
mod entry;
mod follow;
mod interrupted;
mod live;
mod log;
mod once;
mod sweep;

pub use attached::Run;
pub use desk::{Cancelled, NoRun};
pub use diff::NoDiff;
pub use entry::{By, Entry};
pub use follow::{Follow, forget_logs};
pub use once::{Joined, NotOnce, Once};
pub use sweep::{run_seen, runs_seen};

pub(crate) use driven::{cancelled, withdrawn};
pub(crate) use live::{End, Live, Presence, Registry};
pub(crate) use log::Log;
pub(crate) use sweep::Sweeping;

/// A new name. Names are in the order of time.
pub(crate) fn name() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// The run that an attempt belongs to: a second attempt is named after its run, with a number.
pub(crate) fn of_attempt(attempt: &str) -> &str {
    attempt.get(..uuid::fmt::Hyphenated::LENGTH).unwrap_or(attempt)
}
