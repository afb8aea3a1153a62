//! Rows that are made from a part of the log.

use std::collections::HashMap;

use super::upsert::{self, KeyRow};
use crate::error::StoreError;
use crate::log::{LogPosition, LogRecord};
use crate::run_index::RunRow;
use crate::session_state::{ClientId, SessionKey, SessionRow, SessionState};
use crate::store::Store;
use crate::time::Time;
use crate::transaction::Transaction;

/// Part of a log to index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum IndexScope {
    #[default]
    Everything,
    /// Runs and sessions of a process that is alive, to be found at once. That process is about to index them itself, and
    /// only it knows whether the heads of a session are outdated.
    Living,
}

/// Folds a part of the log into rows.
#[derive(Debug, Default)]
pub(super) struct LogFold {
    /// Runs that have not ended in this part.
    open: HashMap<String, RunRow>,
    rows: LogRows,
    scope: IndexScope,
}

/// Rows from a part of the log, for one transaction.
#[derive(Debug, Default)]
pub(super) struct LogRows {
    pub(super) ended: Vec<RunRow>,
    keys: HashMap<String, KeyRow>,
    released: Vec<String>,
    /// Records about runs whose first record is in another part, or that had ended.
    pub(super) late: Vec<(String, LogRecord)>,
    sessions: HashMap<SessionKey, SessionState>,
    /// Sessions in which a turn started, with its client, if that is known, and its time.
    taken: HashMap<SessionKey, (Option<ClientId>, Time)>,
    scope: IndexScope,
    /// The position up to which the log is indexed with these rows. None if rows of open runs are missing.
    pub(super) end: Option<LogPosition>,
}

impl LogFold {
    pub(super) fn new(scope: IndexScope) -> Self {
        Self { scope, ..Self::default() }
    }

    pub(super) fn add(&mut self, run: &str, record: LogRecord, position: LogPosition) {
        match &record {
            LogRecord::Event(_) => {}
            LogRecord::Accepted(accepted) => {
                if let Some(session) = &accepted.session {
                    self.rows.taken.insert(session.clone(), (Some(accepted.owner.clone()), accepted.at));
                }
                if let Some(claim) = accepted.key {
                    let (owner, run) = (accepted.owner.clone(), run.to_owned());
                    self.rows.keys.insert(run.clone(), KeyRow { owner, claim, run, created: accepted.at });
                }
                self.open.insert(run.to_owned(), RunRow::accepted(run, accepted, position));
            }
            LogRecord::Session(state) => {
                let mut state = (**state).clone();
                if let Some(earlier) = self.rows.sessions.get(&state.session.id)
                    && !state.follow(earlier)
                {
                    return;
                }
                self.rows.taken.remove(&state.session.id);
                self.rows.sessions.insert(state.session.id.clone(), state);
            }
            LogRecord::Ended(ended) => {
                if ended.key_released {
                    self.rows.keys.remove(run);
                    self.rows.released.push(run.to_owned());
                }
                match self.open.remove(run) {
                    Some(mut row) => {
                        row.apply(&record);
                        self.rows.ended.push(row);
                    }
                    None => self.rows.late.push((run.to_owned(), record)),
                }
            }
            LogRecord::Started(_) | LogRecord::Continued(_) | LogRecord::Workspace(_) => {
                if let LogRecord::Continued(continued) = &record {
                    let owner = self.open.get(run).map(|row| row.owner.clone());
                    self.rows.taken.insert(continued.session.clone(), (owner, continued.at));
                }
                match self.open.get_mut(run) {
                    Some(row) => row.apply(&record),
                    None => self.rows.late.push((run.to_owned(), record)),
                }
            }
        }
    }

    /// Number of rows that wait to be taken.
    pub(super) fn len(&self) -> usize {
        self.rows.ended.len()
    }

    /// Returns the rows of all runs that have ended since the last call.
    pub(super) fn take(&mut self) -> LogRows {
        LogRows { scope: self.scope, ..std::mem::take(&mut self.rows) }
    }

    /// Returns the rest, with the rows of open runs as they are. `end` is the end of the log.
    pub(super) fn finish(mut self, end: &LogPosition) -> LogRows {
        self.rows.ended.extend(self.open.drain().map(|(_, row)| row));
        LogRows { end: (self.scope == IndexScope::Everything).then(|| end.clone()), ..self.take() }
    }
}

impl LogRows {
    /// Writes all rows in one transaction.
    pub(super) async fn write(&self, store: &Store) -> Result<(), StoreError> {
        let is_whole = self.scope == IndexScope::Everything;
        if !is_whole && self.ended.is_empty() && self.late.is_empty() && self.sessions.is_empty() {
            return Ok(());
        }
        let mut transaction = store.transaction().await?;
        // A session refers to the one that it was forked from.
        let mut sessions: Vec<&SessionState> = self.sessions.values().collect();
        sessions.sort_by_key(|state| (state.session.created, &state.session.id));
        let rows: Vec<&SessionRow> = sessions.iter().map(|state| &state.session).collect();
        let written = upsert::sessions(&mut transaction, &rows).await?;
        if is_whole {
            sessions.retain(|state| written.contains(&state.session.id));
            let heads: Vec<_> = sessions.iter().map(|state| (*state, state.heads.as_slice())).collect();
            upsert::heads(&mut transaction, &heads).await?;
        }
        upsert::runs(&mut transaction, &self.ended.iter().collect::<Vec<_>>()).await?;
        if is_whole {
            for (session, (owner, time)) in &self.taken {
                upsert::forget_heads(&mut transaction, session, owner.as_ref(), *time).await?;
            }
            // A released key may have been claimed again.
            for run in &self.released {
                upsert::release_key(&mut transaction, run).await?;
            }
            upsert::keys(&mut transaction, &self.keys.values().collect::<Vec<_>>()).await?;
        }
        for (run, record) in &self.late {
            apply_late(&mut transaction, run, record).await?;
        }
        if let Some(end) = &self.end {
            upsert::indexed(&mut transaction, end).await?;
        }
        transaction.commit().await
    }
}

/// Applies a record to a row that is in the database already.
pub(super) async fn apply_late(transaction: &mut Transaction, run: &str, record: &LogRecord) -> Result<(), StoreError> {
    if let LogRecord::Workspace(left) = record {
        return upsert::workspace(transaction, run, &left.receipt).await;
    }
    let query = sqlx::AssertSqlSafe(format!("SELECT {} FROM turns WHERE run = ?1", RunRow::COLUMNS));
    let found: Option<RunRow> = sqlx::query_as(query).bind(run).fetch_optional(&mut **transaction).await?;
    if let Some(mut row) = found.filter(|row| row.ended.is_none()) {
        row.apply(record);
        upsert::runs(transaction, &[&row]).await?;
    }
    Ok(())
}
