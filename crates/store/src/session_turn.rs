//! What a turn makes of its session.

use std::fmt;

use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;

use crate::chain::Hash;
use crate::session::{Owner, SessionKey};
use crate::time::Time;

/// A turn that is over, and what it has made of its session: there is one of that name now, if there was none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTurn {
    pub id: SessionKey,
    /// Another's session of that name stays as it is.
    pub owner: Owner,
    /// The name its model was asked for by at first.
    pub model: String,
    pub provider: String,
    /// As text: it is there to be shown and compared.
    pub repo: String,
    /// The first message; its first words become the title.
    pub begins: String,
    /// What to resume by from now on; none leaves it as it was.
    pub native: Option<SessionId>,
    pub succeeded: bool,
    /// The name the model was asked for by now.
    pub asked: String,
    /// The histories that lead to the session now, and how many messages each has. No other does any longer.
    pub chains: Vec<(Hash, usize)>,
    pub time: Time,
}

/// Whether a turn's histories still lead to its session, to be asked once nobody else can write: to get there may have
/// taken long, and somebody may be speaking in the session by now. They do unless something is said to the contrary.
#[derive(Default)]
pub struct Leads(Option<Box<dyn Fn() -> bool + Send + Sync>>);

impl Leads {
    #[must_use]
    pub fn when(they_do: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(they_do)))
    }

    pub(crate) fn hold(&self) -> bool {
        self.0.as_ref().is_none_or(|they_do| they_do())
    }
}

impl fmt::Debug for Leads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Leads(when)" } else { "Leads" })
    }
}
