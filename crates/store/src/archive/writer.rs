//! The sending end of the archive: a bounded queue, emptied by the [`WriterTask`].
//!
//! The queue is limited by the memory that its records take. A sender waits for room, so no record is dropped without an
//! error. A queued record is in the journal as well, in case this process is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError, mpsc, oneshot};
use tokio::time::timeout;
use trunkline_core::event::Event;

use super::bound;
use super::journal::{Journal, JournalCounts};
use super::merge::is_delta;
use super::pending::{EventRecord, PendingRecord};
use super::record::ArchiveRecord;
use super::weight;
use super::writer_task::WriterTask;
use crate::error::StoreError;
use crate::run_index::{TurnBegun, TurnContinued, TurnEnded, TurnStarted, TurnWorkspace};
use crate::session::first_words;
use crate::session_turn::{ChainCondition, SessionTurn};
use crate::store::Store;

/// Limit of the queue.
const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;

/// Time that a sender waits for room. After that the disk is too slow, and the record is lost.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Adds records to the archive. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::UnboundedSender<QueuedRecord>,
    /// One permit for each byte of the queue. A permit is held until the record is in the database.
    room: Arc<Semaphore>,
    /// Whether another process keeps the database locked.
    blocked: Arc<AtomicBool>,
    disk_error: Arc<DiskError>,
    journal: Arc<Journal>,
}

/// Reason why the disk refused the last batch. Empty while it accepts writes.
#[derive(Debug, Default)]
pub(super) struct DiskError(Mutex<Option<String>>);

impl DiskError {
    pub(super) fn set(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A record was not queued.
#[derive(Debug, thiserror::Error)]
pub enum NotQueued {
    /// The queue is full. Contains the record.
    #[error("the archive has a backlog")]
    Full(Box<ArchiveRecord>),
    #[error("the archive is closed")]
    Closed,
}

/// A record that is queued but may not be in the database yet.
#[derive(Debug)]
pub struct InFlight(oneshot::Receiver<Result<(), StoreError>>);

impl InFlight {
    /// Waits until the record is in the database. An error means that it is lost.
    pub async fn kept(self) -> Result<(), StoreError> {
        self.0.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// Tells a sender that its record is in the database, or lost.
pub(super) type CommitReply = oneshot::Sender<Result<(), StoreError>>;

/// A message, and its share of the queue's room.
#[derive(Debug)]
pub(super) struct QueuedRecord {
    pub(super) message: WriterMessage,
    pub(super) bytes: usize,
}

/// The receiving end of the queue, with the state that it shares with the [`Writer`].
#[derive(Debug)]
pub(super) struct WriterQueue {
    pub(super) messages: mpsc::UnboundedReceiver<QueuedRecord>,
    pub(super) room: Arc<Semaphore>,
    pub(super) blocked: Arc<AtomicBool>,
    pub(super) disk_error: Arc<DiskError>,
}

#[derive(Debug)]
pub(super) enum WriterMessage {
    Record(PendingRecord, JournalCounts),
    /// A record whose sender waits until it is in the database.
    Awaited(PendingRecord, JournalCounts, CommitReply),
    /// A delta of a text. More may follow.
    Delta {
        run: String,
        sequence: u64,
        event: Event,
    },
    Flush(CommitReply),
}

impl Store {
    /// Creates a writer for the archive, and the task that writes its records. The caller has to run the task.
    #[must_use]
    pub fn writer(&self) -> (Writer, WriterTask) {
        let (queue, messages) = mpsc::unbounded_channel();
        let writer = Writer {
            queue,
            room: Arc::new(Semaphore::new(MAX_QUEUED_BYTES)),
            blocked: Arc::default(),
            disk_error: Arc::default(),
            journal: Arc::new(Journal::of(self.path())),
        };
        let Writer { room, blocked, disk_error, journal, .. } = writer.clone();
        let task = WriterTask::new(self.clone(), WriterQueue { messages, room, blocked, disk_error }, journal);
        (writer, task)
    }
}

impl Writer {
    /// Queues a record. Waits up to 30 seconds for room. Cancel safe: the record is queued or not.
    pub async fn send(&self, record: ArchiveRecord) -> Result<(), StoreError> {
        let room = self.wait_for_room(weight::of(&record)).await?;
        self.queue_record(room, record);
        Ok(())
    }

    async fn wait_for_room(&self, weight: u32) -> Result<SemaphorePermit<'_>, StoreError> {
        match timeout(SEND_TIMEOUT, self.room.acquire_many(weight)).await {
            Ok(room) => room.map_err(|_| StoreError::Closed),
            Err(_elapsed) => Err(StoreError::Lost("its queue is full".to_owned())),
        }
    }

    /// Whether another process keeps the database locked, so that records wait in the queue.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// The error of the disk (full, read-only or broken) that made the last batch fail. None while writes succeed.
    #[must_use]
    pub fn disk_trouble(&self) -> Option<String> {
        self.disk_error.get()
    }

    /// Clears [`disk_trouble`](Self::disk_trouble), because another write has shown that the disk accepts writes again.
    pub fn disk_cured(&self) {
        self.disk_error.set(None);
    }

    /// Queues a record and waits until it is in the database. An error means that it is not, and will not be.
    pub async fn send_surely(&self, record: ArchiveRecord) -> Result<(), StoreError> {
        let (reply, committed) = oneshot::channel();
        let room = self.wait_for_room(weight::of(&record)).await?;
        match prepare(record) {
            PreparedRecord::Record(record) => self.queue_awaited(room, record, reply),
            // A delta has no commit of its own: others may be merged with it.
            PreparedRecord::Delta { run, sequence, event } => {
                self.put(WriterMessage::Delta { run, sequence, event }, room);
                return self.flush().await;
            }
        }
        // The flush keeps the task from waiting for further records.
        let (flush, _flushed) = oneshot::channel();
        self.put_flush(flush)?;
        InFlight(committed).kept().await
    }

    /// Queues a record if there is room, and returns it otherwise.
    pub fn try_send(&self, record: ArchiveRecord) -> Result<(), NotQueued> {
        match self.room.try_acquire_many(weight::of(&record)) {
            Ok(room) => self.queue_record(room, record),
            Err(TryAcquireError::NoPermits) => return Err(NotQueued::Full(Box::new(record))),
            Err(TryAcquireError::Closed) => return Err(NotQueued::Closed),
        }
        Ok(())
    }

    fn queue_record(&self, room: SemaphorePermit<'_>, record: ArchiveRecord) {
        match prepare(record) {
            PreparedRecord::Record(record) => {
                self.journal.append(record, |record, counts| self.put(WriterMessage::Record(record, counts), room));
            }
            PreparedRecord::Delta { run, sequence, event } => {
                self.put(WriterMessage::Delta { run, sequence, event }, room);
            }
        }
    }

    /// Queues a message. Its room is released by the task, with the batch that the message is in.
    fn put(&self, message: WriterMessage, room: SemaphorePermit<'_>) {
        let bytes = room.num_permits();
        if self.queue.send(QueuedRecord { message, bytes }).is_ok() {
            room.forget();
        }
    }

    fn put_flush(&self, reply: CommitReply) -> Result<(), StoreError> {
        let flush = QueuedRecord { message: WriterMessage::Flush(reply), bytes: 0 };
        self.queue.send(flush).map_err(|_| StoreError::Closed)
    }

    /// Queues the effect of a turn on its session. If there is room, the record is queued and in the journal when this
    /// returns. Otherwise the future waits for room.
    pub fn send_session(
        &self,
        turn: SessionTurn,
        condition: ChainCondition,
    ) -> impl Future<Output = InFlight> + Send + use<> {
        let (reply, committed) = oneshot::channel();
        let weight = weight::of_session(&turn);
        let turn = SessionTurn { begins: first_words(&turn.begins), ..turn };
        let record = PendingRecord::Session { turn, condition };
        let unsent = match self.room.try_acquire_many(weight) {
            Ok(room) => {
                self.queue_awaited(room, record, reply);
                None
            }
            Err(TryAcquireError::NoPermits) => Some((self.clone(), record, reply)),
            Err(TryAcquireError::Closed) => None,
        };
        async move {
            if let Some((writer, record, reply)) = unsent
                && let Ok(room) = writer.wait_for_room(weight).await
            {
                writer.queue_awaited(room, record, reply);
            }
            InFlight(committed)
        }
    }

    fn queue_awaited(&self, room: SemaphorePermit<'_>, record: PendingRecord, reply: CommitReply) {
        self.journal.append(record, |record, counts| self.put(WriterMessage::Awaited(record, counts, reply), room));
    }

    /// Waits until all records that were sent before are in the database. An error means that records were lost since the
    /// last flush.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (reply, flushed) = oneshot::channel();
        self.put_flush(reply)?;
        flushed.await.map_err(|_| StoreError::Closed)?
    }
}

/// A record whose texts are bounded.
enum PreparedRecord {
    Record(PendingRecord),
    Delta { run: String, sequence: u64, event: Event },
}

/// Bounds the texts of a record, before it is queued.
fn prepare(record: ArchiveRecord) -> PreparedRecord {
    let bounded = |text| bound::text(text, bound::MAX_TEXT_BYTES);
    PreparedRecord::Record(match record {
        ArchiveRecord::Begun(begun) => PendingRecord::Begun(TurnBegun { prompt: bounded(begun.prompt), ..begun }),
        ArchiveRecord::Ended(ended) => PendingRecord::Ended(TurnEnded { answer: bounded(ended.answer), ..ended }),
        ArchiveRecord::Started { run, provider, time } => PendingRecord::Started(TurnStarted { run, provider, time }),
        ArchiveRecord::GoesOn { run, session, prompt } => {
            PendingRecord::Continued(TurnContinued { run, session, prompt: bounded(prompt) })
        }
        ArchiveRecord::Workspace { run, receipt } => PendingRecord::Workspace(TurnWorkspace { run, receipt }),
        ArchiveRecord::Event { run, sequence, event } if is_delta(&event) => {
            return PreparedRecord::Delta { run, sequence, event };
        }
        ArchiveRecord::Event { run, sequence, event } => {
            PendingRecord::Event(EventRecord { run, sequence, event: bound::event(&event) })
        }
    })
}
