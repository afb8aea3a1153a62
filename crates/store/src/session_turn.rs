//! The effect of a turn on its session.

use std::fmt;

use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;

use crate::chain::HistoryHash;
use crate::session::{ClientId, SessionKey};
use crate::time::Time;

/// A turn that is over, and its effect on its session. The session is created if it does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTurn {
    pub id: SessionKey,
    /// A session of the same name that belongs to another client is not changed.
    pub owner: ClientId,
    /// The model that the first turn asked for.
    pub model: String,
    pub provider: String,
    /// Path of the repository as text, to be displayed and compared.
    pub repo: String,
    /// The first message. Its first line becomes the title.
    pub begins: String,
    /// The provider's id for resuming the session. None keeps the present one.
    pub native: Option<SessionId>,
    pub succeeded: bool,
    /// The model that this turn asked for.
    pub asked: String,
    /// Hashes of the histories that lead to the session from now on, each with its number of messages. They replace all
    /// others.
    pub chains: Vec<(HistoryHash, usize)>,
    pub time: Time,
}

/// Condition for storing the chains of a [`SessionTurn`], evaluated while the write lock is held.
///
/// The record may have waited in the queue for long, and another turn may be running in the session meanwhile. Then its
/// chains must not be stored. The default condition is always true.
#[derive(Default)]
pub struct ChainCondition(Option<Box<dyn Fn() -> bool + Send + Sync>>);

impl ChainCondition {
    #[must_use]
    pub fn when(condition: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(condition)))
    }

    pub(crate) fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|condition| condition())
    }
}

impl fmt::Debug for ChainCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "ChainCondition(when)" } else { "ChainCondition" })
    }
}
