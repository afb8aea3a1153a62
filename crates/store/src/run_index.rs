//! The run index: a row for each run, made from the records in the log.
//!
//! A row is [folded](RunRow::apply) from the records of a run, in the process that writes them as well as when the index is
//! rebuilt. The API serializes [`RunRow`] as it is.
//!
//! # Adding a column
//!
//! 1. `log/record.rs`: a field in the record that learns the value, with `#[serde(default)]`: records of older versions do
//!    not have it.
//! 2. `schema.rs`: a migration with the `ALTER TABLE turns ADD COLUMN`.
//! 3. This file: a field of [`RunRow`], its line in `accepted` or `apply`, and a line in both column lists.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use trunkline_core::event::{Receipt, Usage};

use crate::columns::{read_columns, write_columns};
use crate::log::{LogPosition, LogRecord, RunAccepted};
use crate::run::{LogState, RunFailure, RunOutcome, RunState, Surface};
use crate::session_state::{ClientId, SessionKey};
use crate::time::{Time, millis_of};

/// Characters of a prompt in the index.
const MAX_PROMPT_CHARS: usize = 200;

/// Characters of a failure's message in the index.
const MAX_MESSAGE_CHARS: usize = 4000;

/// A run without its texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    pub id: String,
    pub state: RunState,
    pub model: String,
    pub provider: Option<String>,
    pub session: Option<SessionKey>,
    /// None if only a later version knows the surface.
    pub surface: Option<Surface>,
    /// Client and purpose of a request that the client sent on its own.
    pub side: Option<String>,
    /// The repository of the run.
    pub place: String,
    /// First 200 characters of the prompt.
    pub prompt: String,
    pub begun: Time,
    pub started: Option<Time>,
    pub ended: Option<Time>,
    pub duration_ms: Option<u64>,
    pub attempts: u64,
    /// Set if the run ended without an answer.
    pub error: Option<RunFailure>,
    pub usage: Usage,
    pub workspace: Option<Receipt>,
    pub detached: bool,
    pub log: Option<LogState>,
    #[serde(skip, default = "ClientId::local")]
    pub owner: ClientId,
    /// Mark of the process that runs it, or did.
    #[serde(skip)]
    pub gateway: Option<String>,
    /// Position of its first record.
    #[serde(skip)]
    pub position: Option<LogPosition>,
}

impl RunRow {
    /// The row of a run that was accepted.
    #[must_use]
    pub fn accepted(run: &str, accepted: &RunAccepted, position: LogPosition) -> Self {
        Self {
            id: run.to_owned(),
            state: RunState::Queued,
            model: accepted.model.clone(),
            provider: None,
            session: accepted.session.clone(),
            surface: Some(accepted.surface),
            side: accepted.side.clone(),
            place: accepted.place.clone(),
            prompt: first_chars(&accepted.prompt, MAX_PROMPT_CHARS).to_owned(),
            begun: accepted.at,
            started: None,
            ended: None,
            duration_ms: None,
            attempts: 0,
            error: None,
            usage: Usage::default(),
            workspace: None,
            detached: accepted.detached,
            log: None,
            owner: accepted.owner.clone(),
            gateway: Some(accepted.gateway.clone()),
            position: Some(position),
        }
    }

    /// Applies a later record of the run.
    pub fn apply(&mut self, record: &LogRecord) {
        match record {
            LogRecord::Accepted(_) | LogRecord::Event(_) | LogRecord::Session(_) => {}
            LogRecord::Started(started) => {
                self.state = RunState::Running;
                self.started = Some(started.at);
                self.provider = Some(started.provider.clone());
            }
            LogRecord::Continued(continued) => {
                self.session = Some(continued.session.clone());
                first_chars(&continued.prompt, MAX_PROMPT_CHARS).clone_into(&mut self.prompt);
            }
            LogRecord::Workspace(left) => self.workspace = Some(left.receipt.clone()),
            LogRecord::Ended(ended) => {
                self.state = if ended.interrupted { RunState::Interrupted } else { RunState::of(ended.outcome) };
                if !ended.provider.is_empty() {
                    self.provider = Some(ended.provider.clone());
                }
                self.session = ended.session.clone().or_else(|| self.session.take());
                self.ended = Some(ended.at);
                self.duration_ms = Some(u64::try_from(ended.duration.as_millis()).unwrap_or(u64::MAX));
                self.attempts = ended.attempts.into();
                self.usage = ended.usage;
                self.log = ended.log;
                self.error = ended.failure().map(|failure| RunFailure {
                    message: first_chars(&failure.message, MAX_MESSAGE_CHARS).to_owned(),
                    ..failure
                });
            }
        }
    }

    /// The duration of the run, up to `now` while it runs.
    #[must_use]
    pub fn duration(&self, now: Time) -> Duration {
        let so_far = || u64::try_from(now.millis() - self.begun.millis()).unwrap_or(0);
        Duration::from_millis(self.duration_ms.unwrap_or_else(so_far))
    }

    pub(crate) fn outcome(&self) -> Option<RunOutcome> {
        self.ended?;
        Some(self.error.as_ref().map_or(RunOutcome::Ok, |error| RunOutcome::Failed(error.category)))
    }
}

write_columns!(RunRow, row =>
    run: &row.id,
    state: row.state.name(),
    model: &row.model,
    provider: row.provider.as_deref(),
    session: row.session.as_ref().map(|session| session.0.as_str()),
    surface: row.surface.unwrap_or_default().name(),
    side: row.side.as_deref(),
    place: &row.place,
    prompt: &row.prompt,
    begun: row.begun.millis(),
    started: row.started.map(Time::millis),
    ended: row.ended.map(Time::millis),
    duration: row.duration_ms.map(number),
    attempts: number(row.attempts),
    outcome: row.outcome().map(RunOutcome::name),
    message: row.error.as_ref().map(|error| error.message.as_str()),
    input_tokens: number(row.usage.input_tokens),
    output_tokens: number(row.usage.output_tokens),
    cached_tokens: number(row.usage.cached_tokens),
    estimated: row.usage.estimated,
    workspace: row.workspace.as_ref().map(receipt_json),
    detached: row.detached,
    log: row.log.map(LogState::name),
    owner: row.owner.as_str(),
    gateway: row.gateway.as_deref(),
    log_process: row.position.as_ref().map(|position| &*position.process),
    log_segment: row.position.as_ref().map(|position| position.segment),
    log_offset: row.position.as_ref().map(|position| number(position.offset)),
);

read_columns!(RunRow, row =>
    id: "run" => row.try_get("run")?,
    // A state that only a later version knows is not one of a run in progress.
    state: "state" => RunState::from_name(row.try_get("state")?).unwrap_or(RunState::Interrupted),
    model: "model" => row.try_get("model")?,
    provider: "provider" => row.try_get::<Option<String>, _>("provider")?.filter(|provider| !provider.is_empty()),
    // A client may name a session that does not exist or belongs to another client.
    session: "(SELECT id FROM sessions WHERE id = turns.session AND sessions.owner = turns.owner) AS session" => {
        row.try_get::<Option<String>, _>("session")?.map(SessionKey)
    },
    surface: "surface" => Surface::from_name(row.try_get("surface")?),
    side: "side" => row.try_get("side")?,
    place: "place" => row.try_get("place")?,
    prompt: "prompt" => row.try_get("prompt")?,
    begun: "begun" => Time::from_millis(row.try_get("begun")?),
    started: "started" => row.try_get::<Option<i64>, _>("started")?.map(Time::from_millis),
    ended: "ended" => row.try_get::<Option<i64>, _>("ended")?.map(Time::from_millis),
    duration_ms: "duration" => row.try_get::<Option<i64>, _>("duration")?.map(count),
    attempts: "attempts" => count(row.try_get("attempts")?),
    error: "outcome, message" => failure(row)?,
    usage: "input_tokens, output_tokens, cached_tokens, estimated" => usage(row)?,
    workspace: "workspace" => {
        row.try_get::<Option<&str>, _>("workspace")?.and_then(|receipt| serde_json::from_str(receipt).ok())
    },
    detached: "detached" => row.try_get("detached")?,
    log: "log" => row.try_get::<Option<&str>, _>("log")?.map(LogState::from_name),
    owner: "owner" => ClientId::new(row.try_get::<String, _>("owner")?),
    gateway: "gateway" => row.try_get("gateway")?,
    position: "log_process, log_segment, log_offset" => position(row)?,
);

/// Returns the first characters of a text.
fn first_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

pub(crate) fn receipt_json(receipt: &Receipt) -> String {
    serde_json::to_string(receipt).expect("a receipt is plain data")
}

fn position(row: &SqliteRow) -> sqlx::Result<Option<LogPosition>> {
    let Some(process) = row.try_get::<Option<&str>, _>("log_process")? else { return Ok(None) };
    let segment = u32::try_from(row.try_get::<Option<i64>, _>("log_segment")?.unwrap_or_default()).unwrap_or_default();
    let offset = count(row.try_get::<Option<i64>, _>("log_offset")?.unwrap_or_default());
    Ok(Some(LogPosition { process: process.into(), segment, offset }))
}

fn failure(row: &SqliteRow) -> sqlx::Result<Option<RunFailure>> {
    let outcome = row.try_get::<Option<&str>, _>("outcome")?.map(RunOutcome::from_name);
    let Some(RunOutcome::Failed(category)) = outcome else { return Ok(None) };
    let message = row.try_get::<Option<String>, _>("message")?.unwrap_or_default();
    Ok(Some(RunFailure { category, message }))
}

fn usage(row: &SqliteRow) -> sqlx::Result<Usage> {
    Ok(Usage {
        input_tokens: count(row.try_get("input_tokens")?),
        output_tokens: count(row.try_get("output_tokens")?),
        cached_tokens: count(row.try_get("cached_tokens")?),
        estimated: row.try_get("estimated")?,
    })
}

/// A count as SQLite stores it.
pub(crate) fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The reverse of [`number`].
pub(crate) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Milliseconds of a duration, as JSON.
pub(crate) fn as_millis<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(millis_of).serialize(serializer)
}
