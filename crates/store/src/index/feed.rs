//! Rows of this process that the database does not have yet.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use trunkline_core::event::Receipt;

use crate::error::StoreError;
use crate::run_index::RunRow;
use crate::session_state::{SessionKey, SessionState};

/// Collects rows for the [`IndexTask`](super::IndexTask), and answers queries about them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct IndexFeed(Arc<FeedState>);

#[derive(Debug, Default)]
pub(super) struct FeedState {
    pending: Mutex<PendingRows>,
    /// Notified when there is something to write.
    pub(super) wake: Notify,
    /// Notified when a caller waits for a transaction.
    pub(super) hurry: Notify,
    /// Whether another process keeps the database locked.
    pub(super) blocked: AtomicBool,
    /// Reason why the disk refused the last transaction.
    pub(super) disk_error: Mutex<Option<String>>,
    pub(super) closed: AtomicBool,
    /// Number of transactions that were committed.
    pub(super) transactions: AtomicU64,
}

/// Rows by kind.
#[derive(Debug, Default)]
pub(super) struct PendingRows {
    /// Runs in progress, and runs that have ended since the last transaction.
    pub(super) runs: HashMap<String, PendingRun>,
    /// Rows of the transaction in progress.
    pub(super) committing: Arc<CommittingRows>,
    pub(super) sessions: HashMap<SessionKey, PendingSession>,
    /// Work of runs that this process does not know, or that have ended.
    pub(super) workspaces: Vec<(String, Receipt)>,
    /// Sessions whose heads are outdated, because a turn has started.
    pub(super) taken_heads: HashSet<SessionKey>,
    /// Runs whose idempotency key may be used again.
    pub(super) released_keys: Vec<String>,
    /// Callers that wait until everything before is committed.
    pub(super) flushes: Vec<CommitReply>,
    /// Whether anything was added since the last transaction began.
    pub(super) changed: bool,
}

impl PendingRows {
    /// Answers all callers that wait: nothing is written any more. The next process indexes the rest from the log.
    pub(super) fn close(&mut self) {
        let sessions = self.sessions.drain().flat_map(|(_, session)| session.replies);
        for reply in sessions.chain(self.flushes.drain(..)) {
            // The caller may not wait any more.
            let _ = reply.send(Err(StoreError::Closed));
        }
    }
}

/// Rows of the transaction in progress that queries may ask for.
#[derive(Debug, Default)]
pub(super) struct CommittingRows {
    pub(super) runs: Vec<RunRow>,
    pub(super) workspaces: Vec<(String, Receipt)>,
}

impl PendingRows {
    /// Adds the state of a session after a turn, which replaces an earlier one.
    fn add_session(&mut self, mut session: PendingSession) {
        if let Some(earlier) = self.sessions.remove(&session.state.session.id) {
            let replies = earlier.replies;
            if session.state.follow(&earlier.state) {
                session.replies.splice(0..0, replies);
            } else {
                let newer = std::mem::replace(&mut session, PendingSession { replies, ..earlier });
                session.replies.extend(newer.replies);
            }
        }
        self.sessions.insert(session.state.session.id.clone(), session);
    }

    /// Adds a session whose transaction failed. There may be a newer state, or a turn may have started in it.
    pub(super) fn put_back_session(&mut self, mut session: PendingSession) {
        if self.taken_heads.contains(&session.state.session.id) {
            session.state.heads.clear();
        }
        let newer = self.sessions.remove(&session.state.session.id);
        self.add_session(session);
        if let Some(newer) = newer {
            self.add_session(newer);
        }
    }
}

#[derive(Debug)]
pub(super) struct PendingRun {
    pub(super) row: RunRow,
    pub(super) dirty: bool,
}

#[derive(Debug)]
pub(super) struct PendingSession {
    pub(super) state: SessionState,
    pub(super) condition: HeadCondition,
    pub(super) replies: Vec<CommitReply>,
}

/// Tells a caller that its rows are in the database, or why they are not.
pub(super) type CommitReply = oneshot::Sender<Result<(), StoreError>>;

/// Condition for storing the heads of a session, evaluated while the write lock is held.
///
/// The row may have waited for long, and another turn may be running in the session meanwhile. Then its heads must not be
/// stored. The default condition is always true.
#[derive(Default)]
pub struct HeadCondition(Option<Box<dyn Fn() -> bool + Send + Sync>>);

impl HeadCondition {
    #[must_use]
    pub fn when(condition: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(condition)))
    }

    pub(super) fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|condition| condition())
    }
}

impl fmt::Debug for HeadCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "HeadCondition(when)" } else { "HeadCondition" })
    }
}

/// Rows that are queued but may not be in the database yet.
#[derive(Debug)]
pub struct InFlight(oneshot::Receiver<Result<(), StoreError>>);

impl InFlight {
    /// Waits until the rows are in the database.
    pub async fn committed(self) -> Result<(), StoreError> {
        self.0.await.unwrap_or(Err(StoreError::Closed))
    }
}

impl IndexFeed {
    /// Adds the row of a run that was accepted.
    pub fn add(&self, row: RunRow) {
        let mut pending = self.pending();
        pending.runs.insert(row.id.clone(), PendingRun { row, dirty: true });
        self.changed(pending);
    }

    /// Changes the row of a run of this process.
    pub fn update(&self, run: &str, change: impl FnOnce(&mut RunRow)) {
        let mut pending = self.pending();
        if let Some(PendingRun { row, dirty }) = pending.runs.get_mut(run) {
            change(row);
            *dirty = true;
        }
        self.changed(pending);
    }

    /// Sets the work of a run, which may be one of another process.
    pub fn set_workspace(&self, run: &str, receipt: &Receipt) {
        let mut pending = self.pending();
        match pending.runs.get_mut(run) {
            Some(PendingRun { row, dirty }) => {
                row.workspace = Some(receipt.clone());
                *dirty = true;
            }
            None => pending.workspaces.push((run.to_owned(), receipt.clone())),
        }
        self.changed(pending);
    }

    /// Adds a session after a turn.
    pub fn add_session(&self, state: SessionState, condition: HeadCondition) -> InFlight {
        let (reply, committed) = oneshot::channel();
        let mut pending = self.pending();
        pending.add_session(PendingSession { state, condition, replies: vec![reply] });
        self.changed(pending);
        InFlight(committed)
    }

    /// Removes the heads of a session from the database, because a turn starts in it.
    pub fn take_heads(&self, session: &SessionKey) {
        let mut pending = self.pending();
        if let Some(waiting) = pending.sessions.get_mut(session) {
            waiting.state.heads.clear();
        }
        pending.taken_heads.insert(session.clone());
        self.changed(pending);
    }

    /// Releases the idempotency key of a run.
    pub fn release_key(&self, run: &str) {
        let mut pending = self.pending();
        pending.released_keys.push(run.to_owned());
        self.changed(pending);
    }

    /// Waits until everything that was added before is in the database.
    pub async fn flush(&self) -> Result<(), StoreError> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        self.queue_flush().committed().await
    }

    fn queue_flush(&self) -> InFlight {
        let (reply, committed) = oneshot::channel();
        let mut pending = self.pending();
        pending.flushes.push(reply);
        self.changed(pending);
        self.0.hurry.notify_one();
        InFlight(committed)
    }

    /// Whether another process keeps the database locked, so that rows wait.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.0.blocked.load(Ordering::Relaxed)
    }

    /// The error of the disk (full, read-only or broken) that made the last transaction fail. None while writes succeed.
    #[must_use]
    pub fn disk_error(&self) -> Option<String> {
        self.0.disk_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of transactions that the task has committed.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.0.transactions.load(Ordering::Relaxed)
    }

    /// The row of a run that the database may not have yet.
    pub(crate) fn run(&self, run: &str) -> Option<RunRow> {
        let pending = self.pending();
        match pending.runs.get(run) {
            Some(found) => Some(found.row.clone()),
            None => pending.committing.runs.iter().find(|row| row.id == run).cloned(),
        }
    }

    /// Work that was saved after its run had ended, the latest last.
    pub(crate) fn late_workspaces(&self) -> Vec<(String, Receipt)> {
        let pending = self.pending();
        pending.committing.workspaces.iter().chain(&pending.workspaces).cloned().collect()
    }

    /// Rows that the database may not have yet.
    pub(crate) fn runs(&self) -> Vec<RunRow> {
        let pending = self.pending();
        let live = pending.runs.values().map(|pending| &pending.row);
        let ended = pending.committing.runs.iter().filter(|row| !pending.runs.contains_key(&row.id));
        live.chain(ended).cloned().collect()
    }

    /// Wakes the task, unless it has been woken for the next transaction already.
    fn changed(&self, mut pending: MutexGuard<'_, PendingRows>) {
        let first = !std::mem::replace(&mut pending.changed, true);
        drop(pending);
        if first {
            self.0.wake.notify_one();
        }
    }

    pub(super) fn state(&self) -> &FeedState {
        &self.0
    }

    pub(super) fn pending(&self) -> MutexGuard<'_, PendingRows> {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
