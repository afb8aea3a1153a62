//! Records on their way into the archive: a queue that anyone adds to, and one task that empties it, many records in one
//! transaction.
//!
//! The queue is bounded. A sender waits for room, so nothing is dropped; what a disk refuses is, loudly: a full disk must
//! not stop the turns.

use std::time::Duration;

use sqlx::{Sqlite, Transaction};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use trunkline_core::event::Event;

use super::bound::{self, Bounded};
use super::merge::{Merging, Numbered};
use super::{Record, TurnBegun, TurnEnded};
use crate::error::StoreError;
use crate::store::Store;
use crate::time::millis_of;

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
}

/// The queue has no room just now: here is the record again.
#[derive(Debug, thiserror::Error)]
#[error("the archive has a backlog")]
pub struct Full(pub Box<Record>);

/// The other end, to be [run](Self::run) by whoever made it.
#[derive(Debug)]
pub struct Keeping {
    queue: mpsc::Receiver<Message>,
    store: Store,
    merging: Merging,
    batch: Vec<Row>,
    kept: Kept,
    /// Why records were lost since somebody last asked.
    lost: Option<String>,
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
    Keep(Record),
    Flush(oneshot::Sender<Result<(), StoreError>>),
}

/// A record as the database takes it.
#[derive(Debug)]
enum Row {
    Begun(TurnBegun),
    Event { run: String, sequence: u64, event: Bounded },
    Ended(TurnEnded),
}

impl Store {
    /// A way into the archive, and the task that keeps what comes in by it.
    #[must_use]
    pub fn writer(&self) -> (Writer, Keeping) {
        let (sender, queue) = mpsc::channel(QUEUE);
        let (merging, batch, kept) = (Merging::default(), Vec::new(), Kept::default());
        (Writer { queue: sender }, Keeping { queue, store: self.clone(), merging, batch, kept, lost: None })
    }
}

impl Writer {
    /// Queues a record, and waits for room if there is none. Cancel safe: the record is queued or it is not.
    pub async fn send(&self, record: Record) -> Result<(), StoreError> {
        self.queue.send(Message::Keep(bounded(record))).await.map_err(|_| StoreError::Closed)
    }

    /// Queues a record if there is room; gives it back if there is none. After the end it takes everything and keeps
    /// nothing, as nobody is there to wait for.
    pub fn try_send(&self, record: Record) -> Result<(), Full> {
        match self.queue.try_send(Message::Keep(bounded(record))) {
            Err(TrySendError::Full(Message::Keep(record))) => Err(Full(Box::new(record))),
            Err(TrySendError::Full(Message::Flush(_)) | TrySendError::Closed(_)) | Ok(()) => Ok(()),
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
            Message::Keep(Record::Begun(begun)) => self.batch.push(Row::Begun(begun)),
            Message::Keep(Record::Event { run, sequence, event }) => {
                for numbered in self.merging.add(&run, sequence, event) {
                    self.push(run.clone(), numbered);
                }
            }
            Message::Keep(Record::Ended(ended)) => {
                if let Some(numbered) = self.merging.end(&ended.run) {
                    self.push(ended.run.clone(), numbered);
                }
                self.batch.push(Row::Ended(ended));
            }
        }
        None
    }

    /// What is open becomes a row as it is.
    fn complete(&mut self) {
        let open: Vec<_> = self.merging.drain().collect();
        for (run, numbered) in open {
            self.push(run, numbered);
        }
    }

    fn push(&mut self, run: String, Numbered { sequence, event }: Numbered) {
        match bound::event(&event) {
            Ok(event) => self.batch.push(Row::Event { run, sequence, event }),
            Err(error) => self.lose(1, &error.into()),
        }
    }

    async fn commit(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        let mut tries = 1;
        loop {
            match write(&self.store, &batch).await {
                Ok(()) => break self.kept.rows += batch.len() as u64,
                Err(StoreError::Busy(_)) if tries < TRIES => tries += 1,
                Err(error) => break self.lose(batch.len(), &error),
            }
        }
        // The same memory for the next one.
        self.batch = batch;
        self.batch.clear();
    }

    /// Said once until it is well again: a full disk would fill with it.
    fn lose(&mut self, count: usize, why: &StoreError) {
        self.kept.lost += count as u64;
        if self.lost.is_none() {
            tracing::error!("the archive lost {count} records, {} so far: {why}", self.kept.lost);
        }
        self.lost = Some(why.to_string());
    }
}

/// What can be long is made short here already, so that the queue is bounded in bytes, too. A piece of text is not: it
/// is bounded where it was read.
fn bounded(record: Record) -> Record {
    match record {
        Record::Begun(begun) => Record::Begun(TurnBegun { prompt: bound::text(begun.prompt, bound::TEXT), ..begun }),
        Record::Ended(ended) => Record::Ended(TurnEnded { answer: bound::text(ended.answer, bound::TEXT), ..ended }),
        Record::Event { run, sequence, event: Event::ToolFinished { id, output, ok } } => {
            let output = bound::text(output, bound::EVENT);
            Record::Event { run, sequence, event: Event::ToolFinished { id, output, ok } }
        }
        event @ Record::Event { .. } => event,
    }
}

async fn write(store: &Store, batch: &[Row]) -> Result<(), StoreError> {
    let mut transaction = store.transaction().await?;
    for row in batch {
        insert(&mut transaction, row).await?;
    }
    Ok(transaction.commit().await?)
}

/// Nothing here fails because of what it is given: a session that has been deleted meanwhile is none, and what belongs
/// to a turn that has been is left out.
async fn insert(transaction: &mut Transaction<'static, Sqlite>, row: &Row) -> Result<(), StoreError> {
    let query = match row {
        Row::Begun(begun) => sqlx::query(
            "INSERT INTO turns (run, session, owner, surface, place, model, prompt, begun)
             VALUES (?1, (SELECT id FROM sessions WHERE id = ?2), ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (run) DO NOTHING",
        )
        .bind(&begun.run)
        .bind(begun.session.as_ref().map(|session| session.0.as_str()))
        .bind(begun.owner.as_str())
        .bind(begun.surface.name())
        .bind(&begun.place)
        .bind(&begun.model)
        .bind(&begun.prompt)
        .bind(begun.time.millis()),
        Row::Event { run, sequence, event } => sqlx::query(
            "INSERT INTO events (turn, sequence, event, cut) SELECT id, ?2, ?3, ?4 FROM turns WHERE run = ?1
             ON CONFLICT (turn, sequence) DO NOTHING",
        )
        .bind(run)
        .bind(number(*sequence))
        .bind(&event.json)
        .bind(event.cut.map(|size| number(size as u64))),
        Row::Ended(ended) => sqlx::query(
            "UPDATE turns SET session = coalesce((SELECT id FROM sessions WHERE id = ?2), session), provider = ?3,
                 outcome = ?4, answer = ?5, input_tokens = ?6, output_tokens = ?7, cached_tokens = ?8, estimated = ?9,
                 duration = ?10 WHERE run = ?1",
        )
        .bind(&ended.run)
        .bind(ended.session.as_ref().map(|session| session.0.as_str()))
        .bind(&ended.provider)
        .bind(ended.outcome.name())
        .bind(&ended.answer)
        .bind(number(ended.usage.input_tokens))
        .bind(number(ended.usage.output_tokens))
        .bind(number(ended.usage.cached_tokens))
        .bind(ended.usage.estimated)
        .bind(millis_of(ended.duration)),
    };
    query.execute(&mut **transaction).await?;
    Ok(())
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
