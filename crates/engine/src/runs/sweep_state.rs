//! The lock that keeps two sweeps of one process apart.

use tokio::time::Instant;

/// Held while a process sweeps; with the time of the last sweep that could not finish.
#[derive(Default)]
pub(crate) struct SweepState(pub(super) tokio::sync::Mutex<Option<Instant>>);
