//! Records: what a caller sends to the archive.

use trunkline_core::event::{Event, Receipt};

use crate::run_index::{TurnBegun, TurnEnded};
use crate::session::SessionKey;
use crate::time::Time;

/// A record for the archive. The caller names its run and numbers its events.
#[derive(Debug, Clone)]
pub enum ArchiveRecord {
    Begun(TurnBegun),
    /// The first attempt has started: the run is no longer queued.
    Started {
        run: String,
        provider: String,
        time: Time,
    },
    /// The session that the run turned out to continue, and its prompt as the session has it.
    GoesOn {
        run: String,
        session: SessionKey,
        prompt: String,
    },
    /// The worktree that an attempt left behind. The last attempt's is the run's.
    Workspace {
        run: String,
        receipt: Receipt,
    },
    /// Consecutive deltas of a text are stored as one event, under the number of the first.
    Event {
        run: String,
        sequence: u64,
        event: Event,
    },
    Ended(TurnEnded),
}
