//! The state of one channel: what was heard, what waits, what runs, and whether its history is still being read.

use std::collections::VecDeque;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::command::Command;
use crate::incoming::Incoming;
use crate::ledger::Progress;
use crate::snowflake::Snowflake;

/// What is going on in one channel.
#[derive(Default)]
pub(crate) struct Desk {
    /// What was heard and is not on record yet, in its order.
    pub(crate) arriving: VecDeque<Arrival>,
    /// One of them is being written down.
    pub(crate) noting: bool,
    /// More was heard than is kept in mind: it is to be read in the history.
    pub(crate) overheard: bool,
    pub(crate) waiting: VecDeque<Waiting>,
    pub(crate) running: Option<Running>,
    /// Its history is being read: nothing new is begun before that is done.
    pub(crate) gate: Option<Gate>,
}

impl Desk {
    /// How many messages wait, on record or not yet.
    pub(crate) fn behind(&self) -> usize {
        let heard = self.arriving.iter().filter(|arrival| matches!(arrival, Arrival::Message(_)));
        self.waiting.len() + heard.count()
    }
}

pub(crate) enum Arrival {
    Message(Incoming),
    /// A message that is not for us.
    Passing(Snowflake),
    /// A command that came as one.
    Interaction {
        id: Snowflake,
        key: String,
        command: Command,
    },
}

/// A message that is on record.
pub(crate) struct Waiting {
    pub(crate) incoming: Incoming,
    pub(crate) progress: Progress,
    /// Taken in by an earlier bridge, which may have had other lists.
    pub(crate) old: bool,
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
