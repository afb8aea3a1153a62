//! Writes the rows of the old tables as records of the log.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};
use trunkline_core::event::{Answer, Event, Finish, Usage};
use trunkline_core::failure::{Category, Failure};

use super::events::WrittenEvents;
use super::segments::UpgradeSegments;
use crate::error::StoreError;
use crate::log::line::is_run_id;
use crate::log::{KeyClaim, LogRecord, RunAccepted, RunEnded, RunLogEntry, RunStarted, RunWorkspace};
use crate::run::{LogState, RunOutcome, RunState, Surface};
use crate::run_index::count;
use crate::session_state::{ClientId, HistoryHash, SessionHead, SessionKey, SessionRow, SessionState};
use crate::time::Time;

/// Rows that are in memory at once. Their texts may be long.
const PAGE_ROWS: i64 = 16;

/// Message of a run that had not ended when the first version of the database was upgraded.
const INTERRUPTED: &str = "interrupted: the gateway ended before the run did";

/// Writes all runs, in the order in which they began. Returns how many.
pub(super) async fn runs(
    connection: &mut SqliteConnection,
    logs: &Path,
    segments: &mut UpgradeSegments,
) -> Result<u64, StoreError> {
    let query = "SELECT turns.*, repeats.key, repeats.request FROM turns
        LEFT JOIN repeats ON repeats.run = turns.run AND repeats.owner = turns.owner
        WHERE turns.id > ?1 ORDER BY turns.id LIMIT ?2";
    let (mut last, mut runs) = (0_i64, 0);
    loop {
        let rows = sqlx::query(query).bind(last).bind(PAGE_ROWS).fetch_all(&mut *connection).await?;
        let Some(end) = rows.last() else { return Ok(runs) };
        last = end.try_get("id")?;
        for row in rows {
            let run: &str = row.try_get("run")?;
            if is_run_id(run) {
                write_run(connection, run, &row, logs, segments).await?;
                runs += 1;
            } else {
                tracing::warn!(run, "the events of a run are lost: the log cannot have a run of this name");
            }
        }
    }
}

async fn write_run(
    connection: &mut SqliteConnection,
    run: &str,
    row: &SqliteRow,
    logs: &Path,
    segments: &mut UpgradeSegments,
) -> Result<(), StoreError> {
    let accepted = accepted(row)?;
    let begun = accepted.at;
    let ended = ended(row, begun)?;
    let mut write = |record: LogRecord| segments.write(run, &record).map_err(StoreError::Log);
    write(LogRecord::Accepted(Box::new(accepted)))?;
    if let Some(at) = row.try_get::<Option<i64>, _>("started")?.map(Time::from_millis) {
        let provider = row.try_get::<Option<String>, _>("provider")?.unwrap_or_default();
        write(LogRecord::Started(RunStarted { at, provider }))?;
    }
    let receipt = row.try_get::<Option<&str>, _>("workspace")?.and_then(|receipt| serde_json::from_str(receipt).ok());
    if let Some(receipt) = receipt {
        write(LogRecord::Workspace(Box::new(RunWorkspace { at: begun, receipt })))?;
    }
    let mut events = WrittenEvents::default();
    events.copy_log(run, logs, segments)?;
    if events.next == 0 {
        let begun = u64::try_from(begun.millis()).unwrap_or_default();
        events.copy_rows(run, begun, connection, segments).await?;
    }
    let Some(ended) = ended else { return Ok(()) };
    if !events.has_end {
        let at = u64::try_from(ended.at.millis()).unwrap_or_default();
        let entry = RunLogEntry { seq: events.next, at, by: None, event: last_event(row, &ended)? };
        events.write(run, entry, segments)?;
    }
    segments.write(run, &LogRecord::Ended(Box::new(ended))).map_err(StoreError::Log)
}

fn accepted(row: &SqliteRow) -> Result<RunAccepted, StoreError> {
    let hash = |column: &str| {
        Ok::<_, StoreError>(row.try_get::<Option<&[u8]>, _>(column)?.and_then(|hash| hash.try_into().ok()))
    };
    Ok(RunAccepted {
        at: Time::from_millis(row.try_get("begun")?),
        owner: ClientId::new(row.try_get::<String, _>("owner")?),
        surface: Surface::from_name(row.try_get("surface")?).unwrap_or_default(),
        place: row.try_get("place")?,
        model: row.try_get("model")?,
        prompt: row.try_get("prompt")?,
        session: row.try_get::<Option<String>, _>("session")?.map(SessionKey),
        gateway: row.try_get::<Option<String>, _>("gateway")?.unwrap_or_default(),
        detached: row.try_get("detached")?,
        key: hash("key")?.zip(hash("request")?).map(|(key, request)| KeyClaim { key, request }),
        request: None,
        side: None,
    })
}

/// None for a run in progress: its gateway may live, or the next sweep ends it.
fn ended(row: &SqliteRow, begun: Time) -> Result<Option<RunEnded>, StoreError> {
    let state = RunState::from_name(row.try_get("state")?).unwrap_or(RunState::Interrupted);
    if !state.is_over() {
        return Ok(None);
    }
    let duration = count(row.try_get::<Option<i64>, _>("duration")?.unwrap_or_default());
    let outcome = row.try_get::<Option<&str>, _>("outcome")?.map(RunOutcome::from_name);
    let message = match outcome {
        Some(RunOutcome::Ok) => None,
        Some(RunOutcome::Failed(_)) => row.try_get("answer")?,
        None => Some(INTERRUPTED.to_owned()),
    };
    Ok(Some(RunEnded {
        at: row.try_get::<Option<i64>, _>("ended")?.map_or(begun, Time::from_millis),
        provider: row.try_get::<Option<String>, _>("provider")?.unwrap_or_default(),
        outcome: outcome.unwrap_or(RunOutcome::Failed(Category::Server)),
        message,
        interrupted: state == RunState::Interrupted,
        usage: usage(row)?,
        duration: Duration::from_millis(duration),
        session: None,
        attempts: u32::try_from(row.try_get::<i64, _>("attempts")?).unwrap_or_default(),
        log: row.try_get::<Option<&str>, _>("log")?.map(LogState::from_name),
        key_released: false,
    }))
}

/// The outcome as an event, for a run whose log has none.
fn last_event(row: &SqliteRow, ended: &RunEnded) -> Result<Event, StoreError> {
    Ok(match ended.outcome {
        RunOutcome::Ok => {
            let answer: Option<String> = row.try_get("answer")?;
            Event::Finished(Answer::new(answer.unwrap_or_default(), ended.usage, Finish::Stop))
        }
        RunOutcome::Failed(category) => {
            Event::Failed(Failure::new(category, ended.message.clone().unwrap_or_default()))
        }
    })
}

fn usage(row: &SqliteRow) -> Result<Usage, StoreError> {
    Ok(Usage {
        input_tokens: count(row.try_get("input_tokens")?),
        output_tokens: count(row.try_get("output_tokens")?),
        cached_tokens: count(row.try_get("cached_tokens")?),
        estimated: row.try_get("estimated")?,
    })
}

/// Writes all sessions, parents before their forks, under the name of their last run. Returns how many.
pub(super) async fn sessions(
    connection: &mut SqliteConnection,
    segments: &mut UpgradeSegments,
) -> Result<u64, StoreError> {
    let query =
        "SELECT sessions.*, (SELECT run FROM turns WHERE turns.session = sessions.id ORDER BY turns.id DESC LIMIT 1)
        AS last_run FROM sessions WHERE (created, id) > (?1, ?2) ORDER BY created, id LIMIT ?3";
    let (mut last, mut written) = ((i64::MIN, String::new()), 0);
    loop {
        let query = sqlx::query(query).bind(last.0).bind(&last.1).bind(PAGE_ROWS);
        let rows = query.fetch_all(&mut *connection).await?;
        let Some(end) = rows.last() else { return Ok(written) };
        last = (end.try_get("created")?, end.try_get("id")?);
        for row in rows {
            let session = <SessionRow as sqlx::FromRow<'_, SqliteRow>>::from_row(&row)?;
            // A session without a run is deleted from the log by its own name.
            let run = row.try_get::<Option<String>, _>("last_run")?.unwrap_or_else(|| session.id.0.clone());
            if is_run_id(&run) {
                let state = with_heads(connection, session).await?;
                segments.write(&run, &LogRecord::Session(Box::new(state))).map_err(StoreError::Log)?;
                written += 1;
            }
        }
    }
}

async fn with_heads(connection: &mut SqliteConnection, session: SessionRow) -> Result<SessionState, StoreError> {
    let query = sqlx::query_as("SELECT model, hash, messages FROM chains WHERE session = ?1 ORDER BY created DESC");
    let chains: Vec<(String, Vec<u8>, i64)> = query.bind(&session.id.0).fetch_all(connection).await?;
    let asked = chains.first().map_or_else(|| session.model.clone(), |(model, _, _)| model.clone());
    let head = |(model, hash, messages): &(String, Vec<u8>, i64)| {
        let hash: HistoryHash = hash.as_slice().try_into().ok()?;
        let messages = usize::try_from(*messages).unwrap_or_default();
        (*model == asked).then_some(SessionHead { hash, messages })
    };
    let heads = chains.iter().filter_map(head).collect();
    Ok(SessionState { session, asked, heads })
}
