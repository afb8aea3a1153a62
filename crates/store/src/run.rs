//! States and outcomes of a run, as the run index spells them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trunkline_core::failure::Category;

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Waits for a slot, or for its session.
    Queued,
    Running,
    Finished,
    Failed,
    /// Its client disconnected, or a request cancelled it.
    Cancelled,
    /// Its gateway ended before the run did.
    Interrupted,
    /// It ended with calls of the client's tools, and its process waits for the results. Never stored.
    Parked,
}

impl RunState {
    pub const ALL: [Self; 7] =
        [Self::Queued, Self::Running, Self::Finished, Self::Failed, Self::Cancelled, Self::Interrupted, Self::Parked];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Parked => "parked",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether the state is final.
    #[must_use]
    pub const fn is_over(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Finished | Self::Failed | Self::Cancelled | Self::Interrupted | Self::Parked => true,
        }
    }

    pub(crate) const fn of(outcome: RunOutcome) -> Self {
        match outcome {
            RunOutcome::Ok => Self::Finished,
            RunOutcome::Failed(Category::Cancelled) => Self::Cancelled,
            RunOutcome::Failed(_) => Self::Failed,
        }
    }
}

/// Whether a run's log has every event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogState {
    Complete,
    Incomplete,
}

impl LogState {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
        }
    }

    /// Any name but `complete` means that events are missing.
    pub(crate) fn from_name(name: &str) -> Self {
        if name == Self::Complete.name() { Self::Complete } else { Self::Incomplete }
    }
}

/// API or interface that a turn came in through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    #[default]
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

/// Outcome of a run that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunOutcome {
    #[default]
    Ok,
    Failed(Category),
}

impl RunOutcome {
    /// `ok`, or the category of the failure.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed(category) => category.name(),
        }
    }

    /// A category that only another version knows is a failure of unknown category.
    pub(crate) fn from_name(name: &str) -> Self {
        let category = || Category::ALL.into_iter().find(|category| category.name() == name);
        if name == "ok" { Self::Ok } else { Self::Failed(category().unwrap_or(Category::Unknown)) }
    }
}

impl Serialize for RunOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for RunOutcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::from_name(&name))
    }
}

/// Reason why a run has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    pub category: Category,
    pub message: String,
}
