//! What a turn has beside its process where the process was there before it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use trunkline_core::live::Line;
use trunkline_process::Spec;

use crate::attempt::scratch::Scratch;
use crate::warm::{Boot, Stamps};

/// How long a process that was there before its turn may take to show that it has heard it: it has nothing to start.
const HEARS: Duration = Duration::from_secs(10);

/// What carries a turn to a process that stays, and the process's own things.
pub(crate) struct WarmAttempt {
    pub(crate) line: Line,
    pub(crate) boot: Arc<Boot>,
    pub(crate) stamps: Stamps,
    pub(crate) scratch: Scratch,
    /// The same turn as a process of its own, should this one be lost.
    pub(crate) cold: Option<Spec>,
    /// When it is taken for lost if it has not answered by then.
    pub(crate) answers_by: Instant,
}

impl WarmAttempt {
    /// By when a process must answer that was told a turn now. Well before its turn's own limit, which is a failure.
    pub(crate) fn answers_by(startup: Duration) -> Instant {
        Instant::now() + HEARS.min(startup / 2)
    }

    /// When it is taken for deaf; never once it has answered.
    pub(crate) fn is_deaf_at(&self) -> Option<Instant> {
        (!self.line.answers()).then_some(self.answers_by)
    }
}
