//! A run from start to finish: its id, its driver and attempts, its log on disk, queries about it and its cancellation.
//!
//! The client that started a run pulls its events, and every event is in the log before the client sees it. Other
//! clients read the log, never the run: a slow reader slows down no run, and a late reader misses nothing. The log
//! outlives the process.
//!
//! ```text
//! start, detached, idempotency      ways to start a run
//! driver ── attempts                events of a run, from one attempt to the next
//! parked, parked_calls              attempts that wait for results of the client's tools
//! live, waiting_client              registry of runs that have not ended, and the clients that wait for them
//! log, logged, masking              lines of a run in the log, without secrets
//! attached, follow                  what a client holds: the run itself, or a reader of its log
//! queries, diff, delete             questions, cancellation, deletion
//! alive, gateway_process            which gateway processes are alive
//! sweep, interrupted                cleanup after gateways that died
//! ```

pub(crate) mod alive;
mod attached;
mod attempts;
mod delete;
mod detached;
mod diff;
mod driver;
mod follow;
pub(crate) mod gateway_process;
mod idempotency;
mod interrupted;
pub(crate) mod live;
pub(crate) mod log;
mod logged;
pub(crate) mod masking;
pub(crate) mod parked;
pub(crate) mod parked_calls;
mod queries;
mod start;
pub(crate) mod structured;
mod sweep;
mod sweep_state;
mod waiting_client;

pub use attached::Run;
pub use delete::DeleteOutcome;
pub use diff::DiffError;
pub use follow::Follow;
pub use idempotency::{IdempotencyError, IdempotentTurn, JoinedRun};
pub use logged::LoggedEvents;
pub use queries::{CancelOutcome, RunQueryError};
pub use sweep::{current_run, current_runs};

pub(crate) use sweep_state::SweepState;

/// Returns a new run id. Ids sort by time.
pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Returns the id of the run that an attempt belongs to. Later attempts append a number to the run id.
pub(crate) fn of_attempt(attempt: &str) -> &str {
    attempt.get(..uuid::fmt::Hyphenated::LENGTH).unwrap_or(attempt)
}
