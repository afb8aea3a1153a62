//! The run index: every struct that is written to or read from the table `turns`, with its columns.
//!
//! A run is a turn of the archive seen as something with a state, so one row of `turns` is both. A run writes its row in
//! steps: [`TurnBegun`] inserts it, the other records update it, each by the name of the run. The API serializes
//! [`RunRow`] as it is.
//!
//! # Adding a column
//!
//! 1. `schema.rs`: a migration with the `ALTER TABLE turns ADD COLUMN`.
//! 2. This file: a field in the record that learns the value and in the row that shows it, with a line in the column list
//!    below each. A field of a written record needs `#[serde(default)]` unless it is an `Option`: the journal of an older
//!    version does not have it.
//! 3. The caller that fills the field.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use trunkline_core::event::{Receipt, Usage};

use crate::columns::{read_columns, write_columns};
use crate::run::{LogState, RunFailure, RunOutcome, RunState, Surface};
use crate::session::{ClientId, SessionKey};
use crate::time::{Time, millis_of};

/// A turn that was accepted. Inserts its row.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TurnBegun {
    pub run: String,
    /// None for a turn without a session.
    pub session: Option<SessionKey>,
    pub owner: ClientId,
    pub surface: Surface,
    /// Place on that surface: a folder, a channel.
    pub place: String,
    pub model: String,
    pub prompt: String,
    pub time: Time,
    /// Mark of the process that runs the turn. A later process can tell by it whether that one is alive.
    pub gateway: String,
    /// Whether the run continues after its client has disconnected.
    pub detached: bool,
}

// A session that has been deleted meanwhile, or belongs to another owner, is stored as none.
write_columns!(TurnBegun, begun =>
    run: &begun.run,
    session = "(SELECT id FROM sessions WHERE id = new.session AND owner = new.owner)": key(&begun.session),
    owner: begun.owner.as_str(),
    surface: begun.surface.name(),
    place: &begun.place,
    model: &begun.model,
    prompt: &begun.prompt,
    begun: begun.time.millis(),
    gateway: &begun.gateway,
    detached: begun.detached,
    state: RunState::Queued.name(),
);

/// A run whose first attempt has started, so that it is no longer queued.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TurnStarted {
    pub(crate) run: String,
    pub(crate) provider: String,
    pub(crate) time: Time,
}

write_columns!(TurnStarted, started =>
    run: &started.run,
    state: RunState::Running.name(),
    provider: &started.provider,
    started: started.time.millis(),
);

/// A run that turned out to continue a session, with its prompt as the session has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TurnContinued {
    pub(crate) run: String,
    pub(crate) session: SessionKey,
    pub(crate) prompt: String,
}

write_columns!(TurnContinued, continued =>
    run: &continued.run,
    session = "(SELECT id FROM sessions WHERE id = new.session AND owner = turns.owner)": &continued.session.0,
    prompt: &continued.prompt,
);

/// The worktree that an attempt left behind. The last attempt's is the run's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TurnWorkspace {
    pub(crate) run: String,
    pub(crate) receipt: Receipt,
}

write_columns!(TurnWorkspace, left =>
    run: &left.run,
    workspace: receipt_json(&left.receipt),
);

/// A turn that is over.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TurnEnded {
    pub run: String,
    pub provider: String,
    pub outcome: RunOutcome,
    /// The answer, or the message of the failure.
    pub answer: String,
    pub usage: Usage,
    pub duration: Duration,
    /// Set if the session became known, or changed, since the turn began.
    pub session: Option<SessionKey>,
    pub time: Time,
    pub attempts: u32,
    /// None if no log was kept.
    pub log: Option<LogState>,
}

write_columns!(TurnEnded, ended =>
    run: &ended.run,
    session = "coalesce((SELECT id FROM sessions WHERE id = new.session AND owner = turns.owner), turns.session)":
        key(&ended.session),
    provider: &ended.provider,
    outcome: ended.outcome.name(),
    answer: &ended.answer,
    input_tokens: number(ended.usage.input_tokens),
    output_tokens: number(ended.usage.output_tokens),
    cached_tokens: number(ended.usage.cached_tokens),
    estimated: ended.usage.estimated,
    duration: millis_of(ended.duration),
    state: RunState::of(ended.outcome).name(),
    ended: ended.time.millis(),
    attempts: ended.attempts,
    log: ended.log.map(LogState::name),
);

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
}

// The answer may be long and stays in the database; of a failure's message, 4000 characters are read.
read_columns!(RunRow, row =>
    id: "run" => row.try_get("run")?,
    // A state that only a later version knows is not one of a run in progress.
    state: "state" => RunState::from_name(row.try_get("state")?).unwrap_or(RunState::Interrupted),
    model: "model" => row.try_get("model")?,
    provider: "provider" => row.try_get::<Option<String>, _>("provider")?.filter(|provider| !provider.is_empty()),
    session: "session" => row.try_get::<Option<String>, _>("session")?.map(SessionKey),
    surface: "surface" => Surface::from_name(row.try_get("surface")?),
    place: "place" => row.try_get("place")?,
    prompt: "substr(prompt, 1, 200) AS prompt" => row.try_get("prompt")?,
    begun: "begun" => Time::from_millis(row.try_get("begun")?),
    started: "started" => row.try_get::<Option<i64>, _>("started")?.map(Time::from_millis),
    ended: "ended" => row.try_get::<Option<i64>, _>("ended")?.map(Time::from_millis),
    duration_ms: "duration" => row.try_get::<Option<i64>, _>("duration")?.map(count),
    attempts: "attempts" => count(row.try_get("attempts")?),
    error: "outcome, iif(outcome = 'ok', NULL, substr(answer, 1, 4000)) AS failure" => failure(row)?,
    usage: "input_tokens, output_tokens, cached_tokens, estimated" => usage(row)?,
    workspace: "workspace" => {
        row.try_get::<Option<&str>, _>("workspace")?.and_then(|receipt| serde_json::from_str(receipt).ok())
    },
    detached: "detached" => row.try_get("detached")?,
    log: "log" => row.try_get::<Option<&str>, _>("log")?.map(LogState::from_name),
    owner: "owner" => ClientId::new(row.try_get::<String, _>("owner")?),
    gateway: "gateway" => row.try_get("gateway")?,
);

impl RunRow {
    /// The duration of the run, up to `now` while it runs.
    #[must_use]
    pub fn duration(&self, now: Time) -> Duration {
        let so_far = || u64::try_from(now.millis() - self.begun.millis()).unwrap_or(0);
        Duration::from_millis(self.duration_ms.unwrap_or_else(so_far))
    }
}

/// A turn with its texts, as a history shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TurnRow {
    pub run: String,
    pub session: Option<SessionKey>,
    pub owner: ClientId,
    /// None if only a later version knows the surface.
    pub surface: Option<Surface>,
    pub place: String,
    pub model: String,
    pub prompt: String,
    pub begun: Time,
    pub provider: Option<String>,
    /// None while it runs, and for good if the gateway ended before the turn did.
    pub outcome: Option<RunOutcome>,
    pub answer: Option<String>,
    pub usage: Usage,
    #[serde(rename = "duration_ms", serialize_with = "as_millis")]
    pub duration: Option<Duration>,
}

read_columns!(TurnRow, row =>
    run: "run" => row.try_get("run")?,
    session: "session" => row.try_get::<Option<String>, _>("session")?.map(SessionKey),
    owner: "owner" => ClientId::new(row.try_get::<String, _>("owner")?),
    surface: "surface" => Surface::from_name(row.try_get("surface")?),
    place: "place" => row.try_get("place")?,
    model: "model" => row.try_get("model")?,
    prompt: "prompt" => row.try_get("prompt")?,
    begun: "begun" => Time::from_millis(row.try_get("begun")?),
    provider: "provider" => row.try_get("provider")?,
    outcome: "outcome" => row.try_get::<Option<&str>, _>("outcome")?.map(RunOutcome::from_name),
    answer: "answer" => row.try_get("answer")?,
    usage: "input_tokens, output_tokens, cached_tokens, estimated" => usage(row)?,
    duration: "duration" => {
        row.try_get::<Option<i64>, _>("duration")?.map(|millis| Duration::from_millis(count(millis)))
    },
);

fn key(session: &Option<SessionKey>) -> Option<&str> {
    session.as_ref().map(|session| session.0.as_str())
}

pub(crate) fn receipt_json(receipt: &Receipt) -> String {
    serde_json::to_string(receipt).expect("a receipt is plain data")
}

fn failure(row: &SqliteRow) -> sqlx::Result<Option<RunFailure>> {
    let outcome = row.try_get::<Option<&str>, _>("outcome")?.map(RunOutcome::from_name);
    let Some(RunOutcome::Failed(category)) = outcome else { return Ok(None) };
    let message = row.try_get::<Option<String>, _>("failure")?.unwrap_or_default();
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

fn as_millis<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
}
