//! Conversations: the texts and events of runs, read from the log.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use sqlx::AssertSqlSafe;
use trunkline_core::event::{Event, Usage};

use crate::error::StoreError;
use crate::log::{LogRecord, RunLogReader};
use crate::merge::{DeltaMerger, NumberedEvent};
use crate::run::{RunOutcome, Surface};
use crate::run_index::{RunRow, as_millis};
use crate::session_state::{ClientId, SessionKey};
use crate::store::Store;
use crate::time::Time;

/// Runs that are read from the index at once.
const PAGE_RUNS: i64 = 64;

/// A run with its texts, as a history shows it.
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
    /// None while the run is in progress.
    pub outcome: Option<RunOutcome>,
    /// The answer, or the message of the failure.
    pub answer: Option<String>,
    pub usage: Usage,
    #[serde(rename = "duration_ms", serialize_with = "as_millis")]
    pub duration: Option<Duration>,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventRow {
    pub sequence: u64,
    #[serde(flatten)]
    pub event: Event,
}

/// Filter for [`Store::export`]. A field that is `None` matches every run.
#[derive(Debug, Clone, Default)]
pub struct ExportFilter {
    pub owner: Option<ClientId>,
    pub session: Option<SessionKey>,
    /// Only runs that began then or later.
    pub since: Option<Time>,
}

#[derive(Serialize)]
struct ExportLine<'a> {
    #[serde(flatten)]
    turn: &'a TurnRow,
    events: Vec<EventRow>,
}

impl Store {
    /// Reader of a run's records. None if the log does not have the run.
    #[must_use]
    pub fn run_log(&self, row: &RunRow) -> Option<RunLogReader> {
        Some(RunLogReader::new(self.log()?, &row.id, row.position.as_ref()?))
    }

    /// Returns the request of a run in the words of its API dialect, as JSON. None if none was recorded.
    pub fn request(&self, row: &RunRow) -> Result<Option<String>, StoreError> {
        let first = self.run_log(row).map_or(Ok(None), |mut log| log.next_record()).map_err(StoreError::Log)?;
        let Some(LogRecord::Accepted(accepted)) = first else { return Ok(None) };
        Ok(accepted.request.map(|request| request.get().to_owned()))
    }

    /// Lists the turns of a session, the first one first. The caller has checked that the client owns it: see
    /// [`Store::session`].
    pub async fn turns(&self, session: &SessionKey) -> Result<Vec<TurnRow>, StoreError> {
        let filter = ExportFilter { session: Some(session.clone()), ..ExportFilter::default() };
        let mut turns = Vec::new();
        self.each_turn(&filter, |turn, _| {
            turns.push(turn);
            Ok(())
        })
        .await?;
        Ok(turns)
    }

    /// Returns a run with its texts.
    pub async fn turn(&self, run: &str) -> Result<Option<TurnRow>, StoreError> {
        let Some(row) = self.run(run, None).await? else { return Ok(None) };
        Ok(Some(self.texts(row).await?.0))
    }

    /// Lists the events of a run in order, without the last one, which is its outcome. Consecutive deltas of a text are one
    /// event with the number of the first.
    pub async fn events(&self, run: &str, from: u64) -> Result<Vec<EventRow>, StoreError> {
        let Some(row) = self.run(run, None).await? else { return Ok(Vec::new()) };
        let mut events = self.texts(row).await?.1;
        events.retain(|event| event.sequence >= from);
        Ok(events)
    }

    /// Writes the turns in the order in which they began. Returns how many were written.
    pub async fn export(&self, filter: &ExportFilter, to: &mut impl Write) -> Result<u64, StoreError> {
        let mut written = 0;
        self.each_turn(filter, |turn, events| {
            serde_json::to_writer(&mut *to, &ExportLine { turn: &turn, events })
                .map_err(|error| StoreError::Write(error.into()))?;
            to.write_all(b"\n").map_err(StoreError::Write)?;
            written += 1;
            Ok(())
        })
        .await?;
        Ok(written)
    }

    async fn each_turn(
        &self,
        filter: &ExportFilter,
        mut each: impl FnMut(TurnRow, Vec<EventRow>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let query = format!(
            "SELECT {} FROM turns WHERE run > ?1 AND (?2 IS NULL OR owner = ?2) AND (?3 IS NULL OR turns.session = ?3
             AND EXISTS (SELECT 1 FROM sessions WHERE id = ?3 AND sessions.owner = turns.owner))
             AND (?4 IS NULL OR begun >= ?4) ORDER BY run LIMIT ?5",
            RunRow::COLUMNS
        );
        let mut last = String::new();
        loop {
            let rows: Vec<RunRow> = sqlx::query_as(AssertSqlSafe(query.as_str()))
                .bind(&last)
                .bind(filter.owner.as_ref().map(ClientId::as_str))
                .bind(filter.session.as_ref().map(|session| session.0.as_str()))
                .bind(filter.since.map(Time::millis))
                .bind(PAGE_RUNS)
                .fetch_all(&self.indexed().await)
                .await?;
            let Some(end) = rows.last() else { return Ok(()) };
            last.clone_from(&end.id);
            for row in rows {
                let (turn, events) = self.texts(row).await?;
                each(turn, events)?;
            }
        }
    }

    /// Reads the texts and events of a run. The lines between its own may be many, so no thread of the runtime reads them.
    async fn texts(&self, row: RunRow) -> Result<(TurnRow, Vec<EventRow>), StoreError> {
        let log = self.run_log(&row);
        let read = tokio::task::spawn_blocking(move || read_texts(row, log)).await;
        read.map_err(io::Error::other).flatten().map_err(StoreError::Log)
    }
}

fn read_texts(row: RunRow, mut log: Option<RunLogReader>) -> io::Result<(TurnRow, Vec<EventRow>)> {
    let (mut prompt, mut answer, mut events) = (row.prompt.clone(), None, Vec::new());
    let mut merger = DeltaMerger::default();
    while let Some(record) = log.as_mut().map_or(Ok(None), RunLogReader::next_record)? {
        match record {
            LogRecord::Accepted(accepted) => prompt = accepted.prompt,
            LogRecord::Continued(continued) => prompt = continued.prompt,
            LogRecord::Event(entry) if entry.event.is_end() => {
                answer = entry.event.end().and_then(Result::ok).map(|answer| answer.content);
            }
            LogRecord::Event(entry) => events.extend(merger.add(entry.seq, entry.event)),
            LogRecord::Started(_) | LogRecord::Workspace(_) | LogRecord::Session(_) | LogRecord::Ended(_) => {}
        }
    }
    events.extend(merger.end());
    let events = events.into_iter().map(|NumberedEvent { sequence, event }| EventRow { sequence, event }).collect();
    let outcome = row.outcome();
    let answer = match outcome {
        Some(RunOutcome::Ok) => answer,
        Some(RunOutcome::Failed(_)) => row.error.map(|error| error.message),
        None => None,
    };
    let turn = TurnRow {
        run: row.id,
        session: row.session,
        owner: row.owner,
        surface: row.surface,
        place: row.place,
        model: row.model,
        prompt,
        begun: row.begun,
        provider: row.provider,
        outcome,
        answer,
        usage: row.usage,
        duration: row.duration_ms.map(Duration::from_millis),
    };
    Ok((turn, events))
}
