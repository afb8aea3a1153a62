//! A record as the database takes it.

use serde::{Deserialize, Serialize};
use trunkline_core::event::Receipt;

use super::bound::Bounded;
use super::{TurnBegun, TurnEnded};
use crate::session::SessionKey;
use crate::session_turn::{Leads, SessionTurn};
use crate::time::Time;

/// Bounded, and with a text in one piece.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Row {
    Session {
        turn: SessionTurn,
        #[serde(skip)]
        leads: Leads,
    },
    Begun(TurnBegun),
    Started {
        run: String,
        provider: String,
        time: Time,
    },
    GoesOn {
        run: String,
        session: SessionKey,
        prompt: String,
    },
    Workspace {
        run: String,
        receipt: Receipt,
    },
    /// Not in the journal: a run's log has it.
    #[serde(skip)]
    Event {
        run: String,
        sequence: u64,
        event: Bounded,
    },
    Ended(TurnEnded),
}

impl Row {
    /// What it tells of: a session, or a run.
    pub(super) fn subject(&self) -> &str {
        match self {
            Self::Session { turn, .. } => &turn.id.0,
            Self::Begun(TurnBegun { run, .. })
            | Self::Started { run, .. }
            | Self::GoesOn { run, .. }
            | Self::Workspace { run, .. }
            | Self::Event { run, .. }
            | Self::Ended(TurnEnded { run, .. }) => run,
        }
    }
}
