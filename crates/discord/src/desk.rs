//! The state of one channel: what waits, what runs, and whether its history is still being read.

use std::collections::VecDeque;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::incoming::Incoming;
use crate::ledger::Progress;

/// What is going on in one channel.
#[derive(Default)]
pub(crate) struct Desk {
    pub(crate) waiting: VecDeque<(Incoming, Progress)>,
    pub(crate) running: Option<Running>,
    /// Its history is being read: nothing new is begun before that is done.
    pub(crate) gate: Option<Gate>,
}

pub(crate) struct Running {
    pub(crate) stop: CancellationToken,
    pub(crate) since: Instant,
}

#[derive(Default)]
pub(crate) struct Gate {
    /// What was said meanwhile.
    pub(crate) held: Vec<Incoming>,
    /// There is more to read than we know of.
    pub(crate) again: bool,
}
