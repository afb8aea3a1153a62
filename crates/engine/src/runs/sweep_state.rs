//! Lock that keeps sweeps of one process from overlapping.

use tokio::time::Instant;

/// Locked during a sweep. Holds the time of the last sweep if that could not finish.
#[derive(Default)]
pub(crate) struct SweepState(pub(super) tokio::sync::Mutex<Option<Instant>>);
