//! Records on their way into the archive: a queue that anyone adds to, and [one task](super::keeping) that empties it.
//!
//! The queue is bounded, by what its records weigh. A sender waits for room, so nothing is dropped. What was queued is in the
//! journal as well, for the case that this process is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError, mpsc, oneshot};
use tokio::time::timeout;
use trunkline_core::event::Event;

use super::bound;
use super::journal::{Journal, Noted};
use super::keeping::Keeping;
use super::merge::is_piece;
use super::record::Record;
use super::row::{EventRecord, Row};
use super::weight;
use crate::error::StoreError;
use crate::run_index::{TurnBegun, TurnContinued, TurnEnded, TurnStarted, TurnWorkspace};
use crate::session::first_words;
use crate::session_turn::{Leads, SessionTurn};
use crate::store::Store;

/// How much may wait, in bytes.
const ROOM: usize = 16 * 1024 * 1024;

/// How long anybody waits for room: then the disk is too slow for what is said, and that is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Adds to the archive. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::UnboundedSender<Queued>,
    /// For what is not in the database yet.
    room: Arc<Semaphore>,
    stuck: Arc<AtomicBool>,
    trouble: Arc<Trouble>,
    journal: Arc<Journal>,
}

/// Why the disk took nothing of the last batch; empty while it does.
#[derive(Debug, Default)]
pub(super) struct Trouble(Mutex<Option<String>>);

impl Trouble {
    pub(super) fn set(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A record that was not queued.
#[derive(Debug, thiserror::Error)]
pub enum NotQueued {
    /// There is no room just now: here it is again.
    #[error("the archive has a backlog")]
    Full(Box<Record>),
    #[error("the archive is closed")]
    Closed,
}

/// What is queued.
#[derive(Debug)]
pub struct OnItsWay(oneshot::Receiver<Result<(), StoreError>>);

impl OnItsWay {
    /// Waits until it is in the database, or lost.
    pub async fn kept(self) -> Result<(), StoreError> {
        self.0.await.unwrap_or(Err(StoreError::Closed))
    }
}

pub(super) type Told = oneshot::Sender<Result<(), StoreError>>;

/// A message, and how much room it takes.
#[derive(Debug)]
pub(super) struct Queued(pub(super) Message, pub(super) usize);

/// What a [`Writer`] shares with whoever keeps its records.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) queue: mpsc::UnboundedReceiver<Queued>,
    pub(super) room: Arc<Semaphore>,
    pub(super) stuck: Arc<AtomicBool>,
    pub(super) trouble: Arc<Trouble>,
}

#[derive(Debug)]
pub(super) enum Message {
    Row(Row, Noted),
    /// One whose sender waits until it is kept.
    Told(Row, Noted, Told),
    /// More may follow that belongs to it.
    Piece {
        run: String,
        sequence: u64,
        event: Event,
    },
    Flush(Told),
}

impl Store {
    /// A way into the archive, and the task that keeps what comes in by it.
    #[must_use]
    pub fn writer(&self) -> (Writer, Keeping) {
        let (sender, queue) = mpsc::unbounded_channel();
        let writer = Writer {
            queue: sender,
            room: Arc::new(Semaphore::new(ROOM)),
            stuck: Arc::default(),
            trouble: Arc::default(),
            journal: Arc::new(Journal::beside(self.path())),
        };
        let Writer { room, stuck, trouble, journal, .. } = writer.clone();
        let keeping = Keeping::new(self.clone(), Incoming { queue, room, stuck, trouble }, journal);
        (writer, keeping)
    }
}

impl Writer {
    /// Queues a record, and waits for room if there is none, though not for ever. Cancel safe: the record is queued or it is
    /// not.
    pub async fn send(&self, record: Record) -> Result<(), StoreError> {
        let room = self.wait_for_room(weight::of(&record)).await?;
        self.queue_in(room, record);
        Ok(())
    }

    async fn wait_for_room(&self, weight: u32) -> Result<SemaphorePermit<'_>, StoreError> {
        match timeout(PATIENCE, self.room.acquire_many(weight)).await {
            Ok(room) => room.map_err(|_| StoreError::Closed),
            Err(_elapsed) => Err(StoreError::Lost("too much waits for it".to_owned())),
        }
    }

    /// Somebody else keeps the database locked: what is sent waits.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// The disk is full, read-only or broken: what was sent last is lost.
    #[must_use]
    pub fn disk_trouble(&self) -> Option<String> {
        self.trouble.get()
    }

    /// The disk takes writes again, as another one has shown.
    pub fn disk_cured(&self) {
        self.trouble.set(None);
    }

    /// Queues a record and waits until it is in the database; an error means that it is not, and will not be.
    pub async fn send_surely(&self, record: Record) -> Result<(), StoreError> {
        let (told, kept) = oneshot::channel();
        let room = self.wait_for_room(weight::of(&record)).await?;
        match bounded(record) {
            Bounded::Row(row) => self.queue_told(room, row, told),
            // Nothing depends on a piece of a text alone.
            Bounded::Piece { run, sequence, event } => {
                self.put(Message::Piece { run, sequence, event }, room);
                return self.flush().await;
            }
        }
        // Somebody waits: the batch is not kept open for others.
        let (now, _flushed) = oneshot::channel();
        self.queue.send(Queued(Message::Flush(now), 0)).map_err(|_| StoreError::Closed)?;
        OnItsWay(kept).kept().await
    }

    /// Queues a record if there is room; gives it back if there is none.
    pub fn try_send(&self, record: Record) -> Result<(), NotQueued> {
        match self.room.try_acquire_many(weight::of(&record)) {
            Ok(room) => self.queue_in(room, record),
            Err(TryAcquireError::NoPermits) => return Err(NotQueued::Full(Box::new(record))),
            Err(TryAcquireError::Closed) => return Err(NotQueued::Closed),
        }
        Ok(())
    }

    fn queue_in(&self, room: SemaphorePermit<'_>, record: Record) {
        match bounded(record) {
            Bounded::Row(row) => self.journal.note(row, |row, noted| self.put(Message::Row(row, noted), room)),
            Bounded::Piece { run, sequence, event } => self.put(Message::Piece { run, sequence, event }, room),
        }
    }

    /// The room is given back with the batch it is in.
    fn put(&self, message: Message, room: SemaphorePermit<'_>) {
        let taken = room.num_permits();
        if self.queue.send(Queued(message, taken)).is_ok() {
            room.forget();
        }
    }

    /// Queues what a turn has made of its session: at once, and on disk, if there is room. The future waits for room if
    /// there is none.
    pub fn send_session(&self, turn: SessionTurn, leads: Leads) -> impl Future<Output = OnItsWay> + Send + use<> {
        let (told, kept) = oneshot::channel();
        let weight = weight::of_session(&turn);
        let row = Row::Session { turn: SessionTurn { begins: first_words(&turn.begins), ..turn }, leads };
        let left = match self.room.try_acquire_many(weight) {
            Ok(room) => {
                self.queue_told(room, row, told);
                None
            }
            Err(TryAcquireError::NoPermits) => Some((self.clone(), row, told)),
            Err(TryAcquireError::Closed) => None,
        };
        async move {
            if let Some((writer, row, told)) = left
                && let Ok(room) = writer.wait_for_room(weight).await
            {
                writer.queue_told(room, row, told);
            }
            OnItsWay(kept)
        }
    }

    fn queue_told(&self, room: SemaphorePermit<'_>, row: Row, told: Told) {
        self.journal.note(row, |row, noted| self.put(Message::Told(row, noted, told), room));
    }

    /// Waits until all that was sent before is in the database. An error means that records were lost since the last time.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (sender, done) = oneshot::channel();
        self.queue.send(Queued(Message::Flush(sender), 0)).map_err(|_| StoreError::Closed)?;
        done.await.map_err(|_| StoreError::Closed)?
    }
}

/// A record that is as long as it may be.
enum Bounded {
    Row(Row),
    Piece { run: String, sequence: u64, event: Event },
}

/// What may be long is made short before it is queued.
fn bounded(record: Record) -> Bounded {
    match record {
        Record::Begun(begun) => {
            Bounded::Row(Row::Begun(TurnBegun { prompt: bound::text(begun.prompt, bound::TEXT), ..begun }))
        }
        Record::Ended(ended) => {
            Bounded::Row(Row::Ended(TurnEnded { answer: bound::text(ended.answer, bound::TEXT), ..ended }))
        }
        Record::Started { run, provider, time } => Bounded::Row(Row::Started(TurnStarted { run, provider, time })),
        Record::GoesOn { run, session, prompt } => {
            let prompt = bound::text(prompt, bound::TEXT);
            Bounded::Row(Row::GoesOn(TurnContinued { run, session, prompt }))
        }
        Record::Workspace { run, receipt } => Bounded::Row(Row::Workspace(TurnWorkspace { run, receipt })),
        Record::Event { run, sequence, event } if is_piece(&event) => Bounded::Piece { run, sequence, event },
        Record::Event { run, sequence, event } => {
            let event = bound::event(&event);
            Bounded::Row(Row::Event(EventRecord { run, sequence, event }))
        }
    }
}
