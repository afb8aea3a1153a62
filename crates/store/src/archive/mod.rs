//! What was said and done: every turn with its events, by whatever door it came in.

mod bound;
mod export;
mod journal;
mod keeping;
mod merge;
mod read;
mod row;
mod sessions;
mod weight;
mod write;
mod writer;

pub use export::Selection;
pub(crate) use journal::recover;
pub use keeping::{Keeping, Kept};
pub use read::{EventRow, TurnRow};
pub use writer::{NotQueued, OnItsWay, Writer};

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trunkline_core::event::{Event, Receipt, Usage};
use trunkline_core::failure::Category;

use crate::run::LogState;
use crate::session::{Owner, SessionKey};
use crate::time::Time;

/// Something to keep. Its run is named by the caller, who also counts the events.
#[derive(Debug, Clone)]
pub enum Record {
    Begun(TurnBegun),
    /// Its first attempt runs: it waits no longer.
    Started {
        run: String,
        provider: String,
        time: Time,
    },
    /// The session it turned out to be part of, and what is said in it, being that.
    GoesOn {
        run: String,
        session: SessionKey,
        prompt: String,
    },
    /// What an attempt left in a worktree of its own; the last one's is the run's.
    Workspace {
        run: String,
        receipt: Receipt,
    },
    /// Pieces of a text that follow one another are kept as one, under the number of the first.
    Event {
        run: String,
        sequence: u64,
        event: Event,
    },
    Ended(TurnEnded),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TurnBegun {
    pub run: String,
    /// None for a turn that nothing follows on.
    pub session: Option<SessionKey>,
    pub owner: Owner,
    pub surface: Surface,
    /// Where on that surface: a folder, a channel.
    pub place: String,
    pub model: String,
    pub prompt: String,
    pub time: Time,
    /// The mark of the process that runs it, by which a later one knows whether it still does.
    pub gateway: String,
    /// It goes on when its client has gone away.
    pub detached: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TurnEnded {
    pub run: String,
    pub provider: String,
    pub outcome: Outcome,
    /// The answer, or what the failure said.
    pub answer: String,
    pub usage: Usage,
    pub duration: Duration,
    /// If it came to be known, or changed, since the turn began.
    pub session: Option<SessionKey>,
    pub time: Time,
    pub attempts: u32,
    /// None where no log was kept.
    pub log: Option<LogState>,
}

/// The door a turn came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    Http,
    Repl,
    Run,
    Page,
    Discord,
}

impl Surface {
    const ALL: [Self; 5] = [Self::Http, Self::Repl, Self::Run, Self::Page, Self::Discord];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Repl => "repl",
            Self::Run => "run",
            Self::Page => "page",
            Self::Discord => "discord",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|surface| surface.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Failed(Category),
}

impl Outcome {
    /// `ok`, or the category.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed(category) => category.name(),
        }
    }

    /// A category of another version is a failure all the same.
    pub(crate) fn from_name(name: &str) -> Self {
        let category = || Category::ALL.into_iter().find(|category| category.name() == name);
        if name == "ok" { Self::Ok } else { Self::Failed(category().unwrap_or(Category::Unknown)) }
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::from_name(&name))
    }
}
