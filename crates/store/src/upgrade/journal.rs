//! Records that a process of an earlier version had queued when it was killed. They are written to the old tables.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use sqlx::SqliteConnection;
use trunkline_core::event::{Receipt, SessionId, Usage};

use super::old_files::if_exists;
use crate::error::StoreError;
use crate::run::{LogState, RunOutcome, RunState, Surface};
use crate::run_index::{number, receipt_json};
use crate::session_state::{ClientId, HistoryHash, SessionKey, first_words};
use crate::time::{Time, millis_of};

/// A line of a journal.
#[derive(Deserialize)]
struct JournalLine {
    /// Position of the record in the order of the queue.
    count: u64,
    row: JournalRecord,
}

#[derive(Deserialize)]
enum JournalRecord {
    Session { turn: Box<SessionTurn> },
    Begun(Box<TurnBegun>),
    Started { run: String, provider: String, time: Time },
    GoesOn { run: String, session: SessionKey, prompt: String },
    Workspace { run: String, receipt: Receipt },
    Ended(Box<TurnEnded>),
}

#[derive(Deserialize)]
struct SessionTurn {
    id: SessionKey,
    owner: ClientId,
    model: String,
    provider: String,
    repo: String,
    begins: String,
    native: Option<SessionId>,
    succeeded: bool,
    asked: String,
    chains: Vec<(HistoryHash, usize)>,
    time: Time,
}

#[derive(Deserialize)]
struct TurnBegun {
    run: String,
    session: Option<SessionKey>,
    owner: ClientId,
    surface: Surface,
    place: String,
    model: String,
    prompt: String,
    time: Time,
    gateway: String,
    detached: bool,
}

#[derive(Deserialize)]
struct TurnEnded {
    run: String,
    provider: String,
    outcome: RunOutcome,
    answer: String,
    usage: Usage,
    duration: Duration,
    session: Option<SessionKey>,
    time: Time,
    attempts: u32,
    log: Option<LogState>,
}

/// Writes the records of all journals. Refused while a process of an earlier version uses one.
pub(super) async fn replay(connection: &mut SqliteConnection, journals: &Path) -> Result<(), StoreError> {
    let Some(folders) = if_exists(fs::read_dir(journals)).map_err(StoreError::Log)? else { return Ok(()) };
    let mut paths = Vec::new();
    for entry in folders {
        paths.push(entry.map_err(StoreError::Log)?.path());
    }
    // Named by their time.
    paths.sort();
    for path in paths {
        let lock = File::open(&path).map_err(StoreError::Log)?;
        if lock.try_lock().is_err() {
            return Err(StoreError::InUse);
        }
        let mut records = read(&path)?;
        clear_heads_of_open_sessions(&mut records);
        // Sessions come first: turns refer to them.
        records.sort_by_key(|record| !matches!(record, JournalRecord::Session { .. }));
        for record in &records {
            record.write(connection).await?;
        }
    }
    Ok(())
}

/// Reads the records of both files, in the order in which they were queued.
fn read(journal: &Path) -> Result<Vec<JournalRecord>, StoreError> {
    let mut lines: Vec<JournalLine> = Vec::new();
    for file in ["0", "1"] {
        let text = if_exists(fs::read(journal.join(file))).map_err(StoreError::Log)?.unwrap_or_default();
        // The last line may be incomplete.
        lines.extend(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()));
    }
    lines.sort_by_key(|line| line.count);
    Ok(lines.into_iter().map(|line| line.row).collect())
}

/// Removes the histories of sessions in which a turn was running when the process was killed: they are not the latest any
/// more.
fn clear_heads_of_open_sessions(records: &mut [JournalRecord]) {
    let mut open = HashMap::new();
    for record in &*records {
        match record {
            JournalRecord::Begun(begun) => open.extend(begun.session.clone().map(|id| (begun.run.clone(), id))),
            JournalRecord::GoesOn { run, session, .. } => drop(open.insert(run.clone(), session.clone())),
            JournalRecord::Ended(ended) => drop(open.remove(&ended.run)),
            JournalRecord::Session { .. } | JournalRecord::Started { .. } | JournalRecord::Workspace { .. } => {}
        }
    }
    for record in records {
        if let JournalRecord::Session { turn } = record
            && open.values().any(|id| *id == turn.id)
        {
            turn.chains.clear();
        }
    }
}

impl JournalRecord {
    async fn write(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let query = match self {
            Self::Session { turn } => return turn.write(connection).await,
            Self::Begun(begun) => sqlx::query(
                "INSERT INTO turns (run, session, owner, surface, place, model, prompt, begun, gateway, detached, state)
                 VALUES (?1, (SELECT id FROM sessions WHERE id = ?2 AND owner = ?3), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                 ON CONFLICT (run) DO NOTHING",
            )
            .bind(&begun.run)
            .bind(begun.session.as_ref().map(|session| session.0.as_str()))
            .bind(begun.owner.as_str())
            .bind(begun.surface.name())
            .bind(&begun.place)
            .bind(&begun.model)
            .bind(&begun.prompt)
            .bind(begun.time.millis())
            .bind(&begun.gateway)
            .bind(begun.detached)
            .bind(RunState::Queued.name()),
            Self::Started { run, provider, time } => {
                let update = "UPDATE turns SET state = 'running', provider = ?2, started = ?3
                    WHERE run = ?1 AND state = 'queued'";
                sqlx::query(update).bind(run).bind(provider).bind(time.millis())
            }
            Self::GoesOn { run, session, prompt } => {
                let update = "UPDATE turns SET prompt = ?3,
                    session = (SELECT id FROM sessions WHERE id = ?2 AND owner = turns.owner) WHERE run = ?1";
                sqlx::query(update).bind(run).bind(&session.0).bind(prompt)
            }
            Self::Workspace { run, receipt } => {
                sqlx::query("UPDATE turns SET workspace = ?2 WHERE run = ?1").bind(run).bind(receipt_json(receipt))
            }
            Self::Ended(ended) => sqlx::query(
                "UPDATE turns SET provider = ?2, outcome = ?3, answer = ?4, input_tokens = ?5, output_tokens = ?6,
                 cached_tokens = ?7, estimated = ?8, duration = ?9, state = ?10, ended = ?11, attempts = ?12, log = ?13,
                 session = coalesce((SELECT id FROM sessions WHERE id = ?14 AND owner = turns.owner), session)
                 WHERE run = ?1",
            )
            .bind(&ended.run)
            .bind(&ended.provider)
            .bind(ended.outcome.name())
            .bind(&ended.answer)
            .bind(number(ended.usage.input_tokens))
            .bind(number(ended.usage.output_tokens))
            .bind(number(ended.usage.cached_tokens))
            .bind(ended.usage.estimated)
            .bind(millis_of(ended.duration))
            .bind(RunState::of(ended.outcome).name())
            .bind(ended.time.millis())
            .bind(ended.attempts)
            .bind(ended.log.map(LogState::name))
            .bind(ended.session.as_ref().map(|session| session.0.as_str())),
        };
        query.execute(connection).await?;
        Ok(())
    }
}

impl SessionTurn {
    /// Writes the session, unless the database has it as it was then, or later.
    async fn write(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let upsert = "INSERT INTO sessions (id, owner, model, provider, repo, title, created, used, native, turns)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?9) ON CONFLICT (id) DO UPDATE SET used = excluded.used,
            native = coalesce(excluded.native, native), turns = turns + excluded.turns
            WHERE owner = excluded.owner AND excluded.used > used";
        let query = sqlx::query(upsert)
            .bind(&self.id.0)
            .bind(self.owner.as_str())
            .bind(&self.model)
            .bind(&self.provider)
            .bind(&self.repo)
            .bind(first_words(&self.begins))
            .bind(self.time.millis())
            .bind(self.native.as_ref().map(|native| &*native.0))
            .bind(i64::from(self.succeeded));
        if query.execute(&mut *connection).await?.rows_affected() == 0 {
            return Ok(());
        }
        sqlx::query("DELETE FROM chains WHERE session = ?1").bind(&self.id.0).execute(&mut *connection).await?;
        for (hash, messages) in &self.chains {
            let insert = "INSERT OR REPLACE INTO chains (owner, model, hash, session, messages, created)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let query = sqlx::query(insert).bind(self.owner.as_str()).bind(&self.asked).bind(hash.as_slice());
            let query = query.bind(&self.id.0).bind(number(*messages as u64)).bind(self.time.millis());
            query.execute(&mut *connection).await?;
        }
        Ok(())
    }
}
