//! Records on their way into the archive: a queue that anyone adds to, and one task that empties it, many records in one
//! transaction.
//!
//! The queue is bounded. A sender waits for room, so nothing is dropped; what a disk refuses is, loudly: a full disk must
//! not stop the turns. What was queued is in the journal as well, for the case that this process is killed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Permit;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use trunkline_core::event::Event;

use super::bound;
use super::journal::{Journal, Noted};
use super::merge::{Merging, Numbered, is_piece};
use super::row::Row;
use super::write::write;
use super::{Record, TurnBegun, TurnEnded};
use crate::error::StoreError;
use crate::store::Store;

/// How many records may wait.
const QUEUE: usize = 1024;

/// A transaction is made of this many records at most,
const BATCH: usize = 256;

/// and of what comes within this time after the first.
const GATHER: Duration = Duration::from_millis(50);

/// How often a transaction is tried while others keep the lock; each time waits as long as SQLite does.
const TRIES: usize = 6;

/// Adds to the archive. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::Sender<Message>,
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

/// The other end, to be [run](Self::run) by whoever made it.
#[derive(Debug)]
pub struct Keeping {
    queue: mpsc::Receiver<Message>,
    store: Store,
    journal: Arc<Journal>,
    merging: Merging,
    batch: Vec<Row>,
    /// What of the batch is in the journal.
    noted: Noted,
    kept: Kept,
    /// Why records were lost since somebody last asked.
    lost: Option<String>,
    /// Whether the last transaction failed: that is said once, or the log would fill the disk as well.
    failing: bool,
}

/// What was kept from beginning to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// Records in the database; pieces of a text are one.
    pub rows: u64,
    /// Records the database would not take.
    pub lost: u64,
}

#[derive(Debug)]
enum Message {
    Row(Row, Noted),
    /// More may follow that belongs to it.
    Piece {
        run: String,
        sequence: u64,
        event: Event,
    },
    Flush(oneshot::Sender<Result<(), StoreError>>),
}

impl Store {
    /// A way into the archive, and the task that keeps what comes in by it.
    #[must_use]
    pub fn writer(&self) -> (Writer, Keeping) {
        let (sender, queue) = mpsc::channel(QUEUE);
        let journal = Arc::new(Journal::beside(self.path()));
        let keeping = Keeping {
            queue,
            store: self.clone(),
            journal: Arc::clone(&journal),
            merging: Merging::default(),
            batch: Vec::new(),
            noted: Noted::default(),
            kept: Kept::default(),
            lost: None,
            failing: false,
        };
        (Writer { queue: sender, journal }, keeping)
    }
}

impl Writer {
    /// Queues a record, and waits for room if there is none. Cancel safe: the record is queued or it is not.
    pub async fn send(&self, record: Record) -> Result<(), StoreError> {
        let room = self.queue.reserve().await.map_err(|_| StoreError::Closed)?;
        self.queue_in(room, record);
        Ok(())
    }

    /// Queues a record if there is room; gives it back if there is none.
    pub fn try_send(&self, record: Record) -> Result<(), NotQueued> {
        match self.queue.try_reserve() {
            Ok(room) => self.queue_in(room, record),
            Err(TrySendError::Full(())) => return Err(NotQueued::Full(Box::new(record))),
            Err(TrySendError::Closed(())) => return Err(NotQueued::Closed),
        }
        Ok(())
    }

    fn queue_in(&self, room: Permit<'_, Message>, record: Record) {
        match bounded(record) {
            Bounded::Row(row) => self.journal.note(row, |row, noted| room.send(Message::Row(row, noted))),
            Bounded::Piece { run, sequence, event } => room.send(Message::Piece { run, sequence, event }),
        }
    }

    /// Waits until all that was sent before is in the database. An error means that records were lost since the last time.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (sender, done) = oneshot::channel();
        self.queue.send(Message::Flush(sender)).await.map_err(|_| StoreError::Closed)?;
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
                match timeout_at(until, self.queue.recv()).await {
                    Ok(Some(message)) => flush = self.take(message),
                    Ok(None) | Err(_) => break,
                }
            }
            self.commit().await;
            if let Some(flushed) = flush {
                let result = self.lost.take().map_or(Ok(()), |why| Err(StoreError::Lost(why)));
                let _nobody_waits = flushed.send(result);
            }
        }
        self.complete();
        self.commit().await;
        self.journal.close();
        self.kept
    }

    /// Cancel safe.
    async fn next(&mut self, stop: &CancellationToken) -> Option<Message> {
        if !self.queue.is_closed() {
            tokio::select! {
                message = self.queue.recv() => return message,
                () = stop.cancelled() => self.queue.close(),
            }
        }
        self.queue.recv().await
    }

    /// Adds a message to the batch; gives whoever waits for it to be kept.
    fn take(&mut self, message: Message) -> Option<oneshot::Sender<Result<(), StoreError>>> {
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
                if let Some(complete) = self.merging.end(row.run()) {
                    self.push(row.run().to_owned(), &complete);
                }
                self.batch.push(row);
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

    async fn commit(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let (batch, noted) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.noted));
        let mut tries = 1;
        let result = loop {
            match write(&self.store, &batch).await {
                Err(StoreError::Busy(_)) if tries < TRIES => tries += 1,
                result => break result,
            }
        };
        match result {
            Ok(changed) => {
                self.kept.rows += batch.len() as u64;
                // What belongs to a turn that was lost is written nowhere, and says nothing about the disk.
                self.failing &= changed == 0;
            }
            Err(error) => self.lose(batch.len(), &error),
        }
        // What is lost goes, too: the journal would have no room for what can be kept.
        self.journal.settle(noted);
        // The same memory for the next one.
        self.batch = batch;
        self.batch.clear();
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

/// What may be long is made short before it is queued, so that the queue is bounded in bytes, too.
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
