//! Records on their way into the archive: a queue that anyone adds to, and one task that empties it, many records in one
//! transaction.
//!
//! The queue is bounded, by what its records weigh. A sender waits for room, so nothing is dropped; what a disk refuses
//! is, loudly: a full disk must not stop the turns. What was queued is in the journal as well, for the case that this process is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use trunkline_core::event::Event;

use super::bound;
use super::journal::{Journal, Noted};
use super::merge::{Merging, Numbered, is_piece};
use super::row::Row;
use super::weight;
use super::write::{Age, write};
use super::{Record, TurnBegun, TurnEnded};
use crate::error::StoreError;
use crate::session::first_words;
use crate::session_turn::{Leads, SessionTurn};
use crate::store::Store;

/// How much may wait, in bytes.
const ROOM: usize = 16 * 1024 * 1024;

/// A transaction is made of this many records at most,
const BATCH: usize = 2048;

/// of no more than this most of the time,
const USUAL: usize = 64;

/// and of what comes within this time after the first.
const GATHER: Duration = Duration::from_millis(25);

/// How long anybody waits for room: then the disk is too slow for what is said, and that is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Adds to the archive. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::UnboundedSender<Queued>,
    /// For what is not in the database yet.
    room: Arc<Semaphore>,
    stuck: Arc<AtomicBool>,
    journal: Arc<Journal>,
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

/// The other end, to be [run](Self::run) by whoever made it.
#[derive(Debug)]
pub struct Keeping {
    queue: mpsc::UnboundedReceiver<Queued>,
    room: Arc<Semaphore>,
    stuck: Arc<AtomicBool>,
    store: Store,
    journal: Arc<Journal>,
    merging: Merging,
    batch: Vec<Row>,
    /// How much room the batch took.
    taken: usize,
    /// What of the batch is in the journal.
    noted: Noted,
    kept: Kept,
    /// Who is to be told when the batch is kept.
    told: Vec<Told>,
    /// Why records were lost since somebody last asked.
    lost: Option<String>,
    /// Whether the last transaction failed: that is said once, or the log would fill the disk as well.
    failing: bool,
    /// Somebody kept the database locked to the end: the rest is left in the journal.
    late: bool,
}

impl Drop for Keeping {
    /// Nobody is to wait for room any more.
    fn drop(&mut self) {
        self.room.close();
    }
}

/// What was kept from beginning to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// Records in the database; pieces of a text are one.
    pub rows: u64,
    /// Records the database would not take.
    pub lost: u64,
}

type Told = oneshot::Sender<Result<(), StoreError>>;

/// A message, and how much room it takes.
#[derive(Debug)]
struct Queued(Message, usize);

#[derive(Debug)]
enum Message {
    Row(Row, Noted),
    Session(Row, Noted, Told),
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
        let (room, stuck) = (Arc::new(Semaphore::new(ROOM)), Arc::<AtomicBool>::default());
        let journal = Arc::new(Journal::beside(self.path()));
        let keeping = Keeping {
            queue,
            room: Arc::clone(&room),
            stuck: Arc::clone(&stuck),
            store: self.clone(),
            journal: Arc::clone(&journal),
            merging: Merging::default(),
            batch: Vec::new(),
            taken: 0,
            noted: Noted::default(),
            told: Vec::new(),
            kept: Kept::default(),
            lost: None,
            failing: false,
            late: false,
        };
        (Writer { queue: sender, room, stuck, journal }, keeping)
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
                self.queue_session(room, row, told);
                None
            }
            Err(TryAcquireError::NoPermits) => Some((self.clone(), row, told)),
            Err(TryAcquireError::Closed) => None,
        };
        async move {
            if let Some((writer, row, told)) = left
                && let Ok(room) = writer.wait_for_room(weight).await
            {
                writer.queue_session(room, row, told);
            }
            OnItsWay(kept)
        }
    }

    fn queue_session(&self, room: SemaphorePermit<'_>, row: Row, told: Told) {
        self.journal.note(row, |row, noted| self.put(Message::Session(row, noted, told), room));
    }

    /// Waits until all that was sent before is in the database. An error means that records were lost since the last time.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (sender, done) = oneshot::channel();
        self.queue.send(Queued(Message::Flush(sender), 0)).map_err(|_| StoreError::Closed)?;
        done.await.map_err(|_| StoreError::Closed)?
    }
}

impl Keeping {
    /// Keeps what is sent until all [`Writer`]s are gone or `stop` is cancelled, and then what is still queued.
    pub async fn run(mut self, stop: CancellationToken) -> Kept {
        while let Some(first) = self.next(&stop).await {
            let until = Instant::now() + GATHER;
            let mut flush = self.take(first);
            while flush.is_none() && self.batch.len() < BATCH {
                let message = async {
                    tokio::select! {
                        biased;
                        message = self.queue.recv() => message,
                        () = stop.cancelled() => None,
                    }
                };
                match timeout_at(until, message).await {
                    Ok(Some(message)) => flush = self.take(message),
                    Ok(None) | Err(_) => break,
                }
            }
            self.commit(&stop).await;
            if let Some(flushed) = flush {
                let result = self.lost.take().map_or(Ok(()), |why| Err(StoreError::Lost(why)));
                let _nobody_waits = flushed.send(result);
            }
        }
        self.complete();
        self.commit(&stop).await;
        self.journal.close();
        self.kept
    }

    /// Cancel safe.
    async fn next(&mut self, stop: &CancellationToken) -> Option<Queued> {
        if !self.queue.is_closed() {
            tokio::select! {
                message = self.queue.recv() => return message,
                () = stop.cancelled() => {
                    self.room.close();
                    self.queue.close();
                }
            }
        }
        self.queue.recv().await
    }

    /// Adds a message to the batch; gives whoever waits for it to be kept.
    fn take(&mut self, Queued(message, taken): Queued) -> Option<Told> {
        self.taken += taken;
        match message {
            Message::Flush(flushed) => {
                self.complete();
                return Some(flushed);
            }
            Message::Piece { run, sequence, event } => {
                if let Some(complete) = self.merging.add(&run, sequence, event) {
                    self.push(run, &complete);
                }
            }
            Message::Row(row, noted) => {
                self.noted.add(noted);
                if let Some(complete) = self.merging.end(row.subject()) {
                    self.push(row.subject().to_owned(), &complete);
                }
                self.batch.push(row);
            }
            Message::Session(row, noted, told) => {
                self.noted.add(noted);
                self.batch.push(row);
                self.told.push(told);
            }
        }
        None
    }

    /// What is open becomes a row as it is.
    fn complete(&mut self) {
        let open: Vec<_> = self.merging.drain().collect();
        for (run, numbered) in open {
            self.push(run, &numbered);
        }
    }

    fn push(&mut self, run: String, numbered: &Numbered) {
        let event = bound::event(&numbered.event);
        self.batch.push(Row::Event { run, sequence: numbered.sequence, event });
    }

    async fn commit(&mut self, stop: &CancellationToken) {
        let taken = std::mem::take(&mut self.taken);
        if self.batch.is_empty() {
            self.room.add_permits(taken);
            return;
        }
        let (batch, noted) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.noted));
        let result = if self.late { Err(StoreError::Closed) } else { self.write(&batch, stop).await };
        for told in self.told.drain(..) {
            let result = result.as_ref().map_or_else(|error| Err(StoreError::Lost(error.to_string())), |_| Ok(()));
            let _nobody_waits = told.send(result);
        }
        match result {
            Ok(changed) => {
                self.kept.rows += batch.len() as u64;
                // What belongs to a turn that was lost is written nowhere, and says nothing about the disk.
                self.failing &= changed == 0;
            }
            // What comes after it must not be there before it, either.
            Err(StoreError::Busy(_) | StoreError::Closed) => self.late = true,
            Err(error) => self.lose(batch.len(), &error),
        }
        self.room.add_permits(taken);
        // What is lost goes, too: the journal would have no room for what can be kept.
        if !self.late {
            self.journal.settle(noted);
        }
        // The same memory for the next one, unless that was an exception.
        self.batch = batch;
        self.batch.clear();
        self.batch.shrink_to(USUAL);
        self.told.shrink_to(USUAL);
    }

    /// Others may keep the lock for as long as they like: what waits is on disk, and in order. Once nothing more is to come
    /// it is not waited for any longer than SQLite does.
    async fn write(&self, batch: &[Row], stop: &CancellationToken) -> Result<u64, StoreError> {
        loop {
            let result = write(&self.store, batch, Age::New).await;
            let Err(error @ StoreError::Busy(_)) = result else {
                if self.stuck.swap(false, Ordering::Relaxed) {
                    tracing::info!("the database is free again");
                }
                return result;
            };
            if !self.stuck.swap(true, Ordering::Relaxed) {
                tracing::error!("{error}; another process keeps it locked, what is said meanwhile is written later");
            }
            if stop.is_cancelled() {
                tracing::error!("what waits for the database is left to the next one to open it");
                return Err(error);
            }
        }
    }

    fn lose(&mut self, count: usize, why: &StoreError) {
        self.kept.lost += count as u64;
        if !self.failing {
            tracing::error!("the archive lost {count} records, {} in all, and may lose more: {why}", self.kept.lost);
        }
        self.failing = true;
        self.lost = Some(why.to_string());
        if matches!(why, StoreError::Broken(_)) {
            self.store.suspect();
        }
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
        Record::Started { run, provider, time } => Bounded::Row(Row::Started { run, provider, time }),
        Record::GoesOn { run, session, prompt } => {
            Bounded::Row(Row::GoesOn { run, session, prompt: bound::text(prompt, bound::TEXT) })
        }
        Record::Workspace { run, receipt } => Bounded::Row(Row::Workspace { run, receipt }),
        Record::Event { run, sequence, event } if is_piece(&event) => Bounded::Piece { run, sequence, event },
        Record::Event { run, sequence, event } => {
            Bounded::Row(Row::Event { run, sequence, event: bound::event(&event) })
        }
    }
}
