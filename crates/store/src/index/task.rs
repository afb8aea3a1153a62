//! The task that writes pending rows to the database.
//!
//! | The database is | The task |
//! |---|---|
//! | locked by another process | retries until it is free |
//! | refused by the disk (full, read-only) | retries every second; callers that start turns can see the reason |
//! | damaged | retries as well, and has the file checked by the next process to open it |
//!
//! Nothing is lost by that: the log has everything, and the next process that opens the database indexes the rest.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::feed::{CommitReply, CommittingRows, IndexFeed, PendingRun, PendingSession};
use super::upsert;
use crate::error::StoreError;
use crate::log::{LogPosition, LogWriter};
use crate::run_index::RunRow;
use crate::session_state::{SessionKey, SessionRow};
use crate::store::Store;

/// Time after the first new row in which others are added to its transaction, unless a caller waits for it.
const COMMIT_INTERVAL: Duration = Duration::from_millis(200);

/// Limit of the rows that wait while the database cannot be written. Beyond it, rows of ended runs are dropped.
const MAX_PENDING_RUNS: usize = 4096;

/// Time after a failed transaction.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Writes the rows of an [`IndexFeed`]. The caller that created both has to [run](Self::run) it.
#[derive(Debug)]
pub struct IndexTask {
    store: Store,
    feed: IndexFeed,
    log: Option<Arc<LogWriter>>,
    failing: bool,
    /// Whether rows were dropped because too many were waiting. They are indexed from the log later.
    behind: bool,
}

/// Rows of one transaction.
#[derive(Debug, Default)]
struct Batch {
    rows: Arc<CommittingRows>,
    sessions: Vec<(SessionKey, PendingSession)>,
    taken_heads: HashSet<SessionKey>,
    released_keys: Vec<String>,
    flushes: Vec<CommitReply>,
    /// Everything before it in the log is in the batch, or in the database.
    end: Option<LogPosition>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        let CommittingRows { runs, workspaces } = &*self.rows;
        let others = self.sessions.is_empty() && self.taken_heads.is_empty() && self.released_keys.is_empty();
        runs.is_empty() && workspaces.is_empty() && others
    }
}

impl Store {
    /// Creates the feed for rows of this process, and the task that writes them behind `log`. The caller has to run the
    /// task.
    #[must_use]
    pub fn index(&self, log: Option<Arc<LogWriter>>) -> (IndexFeed, IndexTask) {
        if let Some(log) = &log {
            // The log of a process does not change.
            let _ = self.own_log().set(Arc::clone(log));
        }
        let feed = self.feed().clone();
        (feed.clone(), IndexTask { store: self.clone(), feed, log, failing: false, behind: false })
    }
}

impl IndexTask {
    /// Writes rows until `stop` is cancelled, and then those that are left.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = self.feed.state().wake.notified() => {}
                () = stop.cancelled() => break,
            }
            self.wait_for_more(&stop).await;
            if !self.commit(&stop).await && !stop.is_cancelled() {
                tokio::select! {
                    () = sleep(RETRY_INTERVAL) => {}
                    () = stop.cancelled() => {}
                }
                self.feed.state().wake.notify_one();
            }
        }
        self.feed.state().closed.store(true, Ordering::Release);
        if self.commit(&stop).await
            && !self.behind
            && let Some(log) = &self.log
        {
            log.close();
        }
        self.feed.pending().close();
    }

    /// Waits for more rows for the same transaction, unless a caller waits for it.
    async fn wait_for_more(&self, stop: &CancellationToken) {
        let wait = sleep(COMMIT_INTERVAL);
        tokio::pin!(wait);
        while self.feed.pending().flushes.is_empty() {
            tokio::select! {
                () = &mut wait => return,
                () = stop.cancelled() => return,
                () = self.feed.state().hurry.notified() => {}
            }
        }
    }

    /// Writes everything that is pending. False if that failed: the rows are still pending.
    async fn commit(&mut self, stop: &CancellationToken) -> bool {
        // Before rows are taken: a new file gets those that were written to the former one from the log.
        self.store.follow_file().await;
        let batch = self.take();
        // The last transaction also stores the position in the log: nothing is left to the next process.
        let is_last = self.feed.state().closed.load(Ordering::Acquire) && batch.end.is_some();
        if batch.is_empty() && !is_last {
            batch.flushes.into_iter().for_each(|reply| drop(reply.send(Ok(()))));
            return true;
        }
        match self.write(&batch, stop).await {
            Ok(()) => {
                self.feed.state().transactions.fetch_add(1, Ordering::Relaxed);
                self.feed.pending().committing = Arc::default();
                let replies = batch.sessions.into_iter().flat_map(|(_, session)| session.replies).chain(batch.flushes);
                replies.for_each(|reply| drop(reply.send(Ok(()))));
                self.set_error(None);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the database is written again");
                }
                self.index_dropped().await;
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!("the index of runs cannot be written, the log has them: {error}");
                }
                if matches!(error, StoreError::Broken(_)) {
                    self.store.connections().mark_suspect();
                }
                self.set_error(matches!(error, StoreError::Disk(_)).then(|| error.to_string()));
                self.put_back(batch, &error);
                false
            }
        }
    }

    /// Indexes the rows that were dropped, from the log.
    async fn index_dropped(&mut self) {
        if let (true, Some(log)) = (self.behind, &self.log) {
            match self.store.index_own(log).await {
                Ok(()) => self.behind = false,
                Err(error) => tracing::warn!(%error, "the log of this process could not be indexed; it is tried again"),
            }
        }
    }

    fn set_error(&self, reason: Option<String>) {
        *self.feed.state().disk_error.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Takes all pending rows. Rows of runs in progress stay, so that queries find them.
    fn take(&self) -> Batch {
        let take = |end: Option<LogPosition>| {
            let mut pending = self.feed.pending();
            let is_over = |_: &String, run: &mut PendingRun| run.row.ended.is_some();
            let mut runs: Vec<RunRow> = pending.runs.extract_if(is_over).map(|(_, run)| run.row).collect();
            for run in pending.runs.values_mut().filter(|run| run.dirty) {
                run.dirty = false;
                runs.push(run.row.clone());
            }
            let rows = Arc::new(CommittingRows { runs, workspaces: std::mem::take(&mut pending.workspaces) });
            pending.committing = Arc::clone(&rows);
            pending.changed = false;
            // A session refers to the one that it was forked from.
            let mut sessions: Vec<_> = pending.sessions.drain().collect();
            sessions.sort_by(|(one, first), (other, second)| {
                (first.state.session.created, one).cmp(&(second.state.session.created, other))
            });
            Batch {
                rows,
                sessions,
                taken_heads: std::mem::take(&mut pending.taken_heads),
                released_keys: std::mem::take(&mut pending.released_keys),
                flushes: std::mem::take(&mut pending.flushes),
                end,
            }
        };
        match &self.log {
            // Dropped rows are behind the present position.
            Some(log) => log.with_end(|end| take(end.filter(|_| !self.behind))),
            None => take(None),
        }
    }

    /// Makes the rows of a failed transaction pending again, unless there are newer ones.
    fn put_back(&mut self, batch: Batch, error: &StoreError) {
        let mut pending = self.feed.pending();
        pending.committing = Arc::default();
        let Batch { rows, sessions, taken_heads, released_keys, flushes, end: _ } = batch;
        let Some(CommittingRows { runs, workspaces }) = Arc::into_inner(rows) else {
            unreachable!("the rows are shared with queries only while they hold the lock")
        };
        for row in runs {
            match pending.runs.get_mut(&row.id) {
                Some(newer) => newer.dirty = true,
                None => drop(pending.runs.insert(row.id.clone(), PendingRun { row, dirty: true })),
            }
        }
        for (_, session) in sessions {
            pending.put_back_session(session);
        }
        pending.workspaces.splice(0..0, workspaces);
        pending.taken_heads.extend(taken_heads);
        pending.released_keys.extend(released_keys);
        drop(pending);
        self.drop_surplus();
        for reply in flushes {
            let _ = reply.send(Err(StoreError::Late(error.to_string())));
        }
    }

    /// Bounds the memory of rows that wait.
    fn drop_surplus(&mut self) {
        let mut pending = self.feed.pending();
        if self.log.is_some() && pending.runs.len() > MAX_PENDING_RUNS {
            pending.runs.retain(|_, run| run.row.ended.is_none());
            self.behind = true;
        }
        if self.log.is_some() && pending.sessions.len() > MAX_PENDING_RUNS {
            // Callers that wait for them get an error.
            pending.sessions.clear();
            self.behind = true;
        }
    }

    /// Writes a batch. While another process holds the lock, retries without limit. Once `stop` is cancelled, the wait is
    /// no longer than SQLite's own timeout.
    async fn write(&mut self, batch: &Batch, stop: &CancellationToken) -> Result<(), StoreError> {
        loop {
            let result = write(&self.store, batch).await;
            self.drop_surplus();
            let blocked = &self.feed.state().blocked;
            let Err(error @ StoreError::Busy(_)) = result else {
                if blocked.swap(false, Ordering::Relaxed) {
                    tracing::info!("the database is free again");
                }
                return result;
            };
            if !blocked.swap(true, Ordering::Relaxed) {
                tracing::error!("{error}; another process keeps it locked, the index is written once it is free");
            }
            if stop.is_cancelled() {
                tracing::error!("the database is locked: the rest of the index is left to the next start");
                return Err(error);
            }
        }
    }
}

async fn write(store: &Store, batch: &Batch) -> Result<(), StoreError> {
    let mut transaction = store.transaction().await?;
    upsert::forget_all_heads(&mut transaction, batch.taken_heads.iter()).await?;
    let sessions: Vec<&SessionRow> = batch.sessions.iter().map(|(_, session)| &session.state.session).collect();
    let written = upsert::sessions(&mut transaction, &sessions).await?;
    let written = batch.sessions.iter().filter(|(session, _)| written.contains(session));
    // The conditions are evaluated only now that no other process can write: see `HeadCondition`.
    let heads = written.map(|(_, PendingSession { state, condition, .. })| {
        (state, if condition.holds() { state.heads.as_slice() } else { &[] })
    });
    upsert::heads(&mut transaction, &heads.collect::<Vec<_>>()).await?;
    upsert::runs(&mut transaction, &batch.rows.runs.iter().collect::<Vec<_>>()).await?;
    for run in &batch.released_keys {
        upsert::release_key(&mut transaction, run).await?;
    }
    for (run, receipt) in &batch.rows.workspaces {
        upsert::workspace(&mut transaction, run, receipt).await?;
    }
    if let Some(end) = batch.end.as_ref() {
        upsert::indexed(&mut transaction, end).await?;
    }
    transaction.commit().await
}
