//! The record of every turn: lines in the log, and rows for the index behind it.
//!
//! The log holds everything that a client is promised before the client reads it: the accepted turn before the answer
//! begins, the outcome and the session before the answer ends. The index follows within a moment; no turn waits for it.

mod disk;
mod recorder;
pub(crate) mod tally;

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, error::SendError, unbounded_channel};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trunkline_core::event::Receipt;
use trunkline_core::failure::Failure;
use trunkline_store::{
    Durability, InFlight, IndexFeed, LogRecord, LogWriter, Purpose, RunEnded, RunWorkspace, Store, StoreError, Time,
    log_line,
};

use self::disk::DiskCheck;
pub(crate) use self::recorder::{Recorder, RunEnd, RunStart, cancelled_by_client, not_recorded};
use self::tally::TurnCounters;
use crate::session::SessionWrite;

/// Time that a reader waits for pending rows to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The log of this process, and the index once there is one.
pub(crate) struct StoreWriter {
    log: Arc<LogWriter>,
    index: OnceLock<(Store, IndexFeed)>,
    /// Sessions whose states are on their way to the database. As many as the feed holds.
    unsaved: OnceLock<UnboundedSender<UnsavedSession>>,
    pub(crate) tally: Arc<TurnCounters>,
    stop: CancellationToken,
    tasks: TaskTracker,
    disk: DiskCheck,
}

impl StoreWriter {
    /// A writer without an index until [`open`](Self::open).
    pub(crate) fn new(state: &Path, durability: Durability) -> Self {
        Self {
            log: Arc::new(LogWriter::new(state, durability)),
            index: OnceLock::new(),
            unsaved: OnceLock::new(),
            tally: Arc::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            disk: DiskCheck::new(state),
        }
    }

    /// Rows go to this store from now on.
    pub(crate) fn open(&self, store: &Store) -> IndexFeed {
        let (_, feed) = self.index.get_or_init(|| {
            let (feed, task) = store.index(Some(Arc::clone(&self.log)));
            self.tasks.spawn(task.run(self.stop.clone()));
            let (unsaved, queue) = unbounded_channel();
            if self.unsaved.set(unsaved).is_ok() {
                self.tasks.spawn(release_when_saved(queue, self.stop.clone()));
            }
            (store.clone(), feed)
        });
        feed.clone()
    }

    /// The store, for reading.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.index.get().map(|(store, _)| store)
    }

    fn feed(&self) -> Option<&IndexFeed> {
        self.index.get().map(|(_, feed)| feed)
    }

    /// Waits until pending rows are in the database, for at most [`FLUSH_TIMEOUT`]: another process may hold a lock on it.
    pub(crate) async fn flush(&self) {
        if let Some(feed) = self.feed() {
            // A failure is logged where it happens.
            let _ = timeout(FLUSH_TIMEOUT, feed.flush()).await;
        }
    }

    /// Number of writes to the log that failed.
    pub(crate) fn lost(&self) -> u64 {
        self.log.failed_writes()
    }

    /// Waits until everything in the log survives what the settings promise.
    pub(crate) async fn sync(&self) -> io::Result<()> {
        self.log.sync().await
    }

    /// Indexes what killed processes have left in the log.
    pub(crate) async fn catch_up(&self) -> Result<(), StoreError> {
        let Some(store) = self.store() else { return Ok(()) };
        store.catch_up(Some(&self.log)).await.inspect_err(|error| {
            tracing::warn!(%error, "the log of other processes could not be indexed");
        })
    }

    /// Writes all pending rows and stops the index task.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Records the receipt of an attempt.
    pub(crate) fn note_workspace(&self, run: &str, receipt: &Receipt) {
        let left = RunWorkspace { at: Time::now(), receipt: receipt.clone() };
        self.append(run, &LogRecord::Workspace(left.into()), |feed| feed.set_workspace(run, receipt));
    }

    /// Records the end of a run of another process, which has died. The row is changed already.
    pub(crate) fn note_interrupted(&self, run: &str, ended: RunEnded) {
        self.append(run, &LogRecord::Ended(ended.into()), |_| {});
    }

    /// Records that the process of a run ended while it waited for results of the client's tools.
    pub(crate) async fn end_parked(&self, run: &str, why: &Failure) {
        let Some(store) = self.store() else { return };
        let Ok(Some(mut row)) = store.run(run, None).await else { return };
        let ended = RunEnded {
            usage: row.usage,
            session: row.session.clone(),
            attempts: u32::try_from(row.attempts).unwrap_or(u32::MAX),
            log: row.log,
            ..RunEnded::failed(why, row.duration(Time::now()))
        };
        let record = LogRecord::Ended(ended.into());
        row.apply(&record);
        self.append(run, &record, |feed| feed.add(row));
    }

    /// Records the session after a turn that has no record of its own.
    pub(crate) fn leave_session(&self, run: &str, write: SessionWrite) {
        let Some(state) = write.state() else { return };
        let mut queued = None;
        self.append(run, &LogRecord::Session(state.clone().into()), |feed| {
            queued = Some(feed.add_session(state.clone(), write.condition()));
        });
        self.wait_until_indexed(write, queued);
    }

    /// Keeps other processes out of a session until the database has its state.
    fn wait_until_indexed(&self, write: SessionWrite, queued: Option<InFlight>) {
        let (Some(queued), Some(unsaved)) = (queued, self.unsaved.get()) else { return };
        if let Err(SendError((write, _))) = unsaved.send((write, queued)) {
            write.saved(Err(StoreError::Closed));
        }
    }

    fn append(&self, run: &str, record: &LogRecord, then: impl FnOnce(&IndexFeed)) {
        let mut line = Vec::new();
        log_line(&mut line, run, record);
        let then = |_: &trunkline_store::Extent| {
            if let Some(feed) = self.feed() {
                then(feed);
            }
        };
        if let Err(error) = self.log.append(&line, Purpose::Continue, then) {
            tracing::error!(run, %error, "a record of the run could not be written");
        }
    }
}

/// A session after a turn, and the row that the database does not have yet.
type UnsavedSession = (SessionWrite, InFlight);

/// Releases sessions as the database gets them. One task does that for all turns: their rows are committed together.
async fn release_when_saved(mut queue: UnboundedReceiver<UnsavedSession>, stop: CancellationToken) {
    loop {
        let next = match stop.run_until_cancelled(queue.recv()).await {
            Some(next) => next,
            // The index task answers everything that is left.
            None => queue.try_recv().ok(),
        };
        let Some((write, queued)) = next else { return };
        write.saved(queued.committed().await);
    }
}

#[cfg(test)]
mod tests;
