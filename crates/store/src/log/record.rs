//! Records of the log. Names of variants and fields are its format, which later versions have to read.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use trunkline_core::event::{Event, Receipt, Resumption, Usage};
use trunkline_core::failure::Failure;

use crate::run::{LogState, RunFailure, RunOutcome, Surface};
use crate::session_state::{ClientId, SessionKey, SessionState};
use crate::time::Time;

/// A record about a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogRecord {
    /// The first record of a run.
    Accepted(Box<RunAccepted>),
    Started(RunStarted),
    Continued(RunContinued),
    Event(Box<RunLogEntry>),
    Workspace(Box<RunWorkspace>),
    /// The session after the turn.
    Session(Box<SessionState>),
    /// The last record of a run, except for work that is saved later.
    Ended(Box<RunEnded>),
}

/// A turn that was accepted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunAccepted {
    pub at: Time,
    pub owner: ClientId,
    pub surface: Surface,
    /// Place on that surface: a folder, a channel.
    pub place: String,
    pub model: String,
    pub prompt: String,
    /// The session that the client named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// Mark of the process that runs the turn. A later process can tell by it whether that one is alive.
    pub gateway: String,
    /// Whether the run continues after its client has disconnected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyClaim>,
    /// Client and purpose of a request that the client sent on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<String>,
    /// The request in the words of its API dialect, if the client may ask for it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<RawValue>>,
}

/// The idempotency key of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyClaim {
    /// Hash of the key.
    #[serde(with = "crate::hex")]
    pub key: [u8; 32],
    /// Hash of the request.
    #[serde(with = "crate::hex")]
    pub request: [u8; 32],
}

/// The first attempt has started: the run is no longer queued.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunStarted {
    pub at: Time,
    pub provider: String,
}

/// The run turned out to continue a session. The prompt is as the session has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunContinued {
    pub at: Time,
    pub session: SessionKey,
    pub prompt: String,
}

/// One event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLogEntry {
    /// Sequence number, from 0 without gaps.
    pub seq: u64,
    /// Time of the event, in milliseconds since the Unix epoch.
    pub at: u64,
    /// The current attempt. Only in entries where it has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<CurrentAttempt>,
    pub event: Event,
}

/// The attempt that works on a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CurrentAttempt {
    pub provider: String,
    /// Number of attempts so far, including the current one.
    pub attempts: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Resumption>,
}

/// The worktree that an attempt left behind. The last attempt's is the run's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunWorkspace {
    pub at: Time,
    pub receipt: Receipt,
}

/// A run that is over. Its answer is in its last event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunEnded {
    pub at: Time,
    pub provider: String,
    pub outcome: RunOutcome,
    /// Message of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether the gateway ended before the run did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    pub usage: Usage,
    #[serde(rename = "duration_ms", with = "millis")]
    pub duration: Duration,
    /// Set if the session became known, or changed, since the turn began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    pub attempts: u32,
    /// None if no event was logged.
    pub log: Option<LogState>,
    /// Whether the idempotency key of the run may be used again: there is no answer to repeat.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub key_released: bool,
}

impl RunEnded {
    /// The end of a run whose gateway is gone.
    #[must_use]
    pub fn interrupted(why: &Failure, begun: Time) -> Self {
        let duration = u64::try_from(Time::now().millis() - begun.millis()).unwrap_or(0);
        let ended = Self::failed(why, Duration::from_millis(duration));
        Self { interrupted: true, log: Some(LogState::Incomplete), ..ended }
    }

    /// The end of a run that has failed.
    #[must_use]
    pub fn failed(why: &Failure, duration: Duration) -> Self {
        Self {
            at: Time::now(),
            provider: String::new(),
            outcome: RunOutcome::Failed(why.category),
            message: Some(why.message.clone()),
            interrupted: false,
            usage: Usage::default(),
            duration,
            session: None,
            attempts: 0,
            log: None,
            key_released: false,
        }
    }

    pub(crate) fn failure(&self) -> Option<RunFailure> {
        let RunOutcome::Failed(category) = self.outcome else { return None };
        Some(RunFailure { category, message: self.message.clone().unwrap_or_default() })
    }
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
