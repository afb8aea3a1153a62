//! Keeps what is queued for the archive: one task, many records in one transaction.
//!
//! What a disk refuses is lost, and loudly; whoever starts turns can see that it does ([`Writer::disk_trouble`]).
//!
//! [`Writer::disk_trouble`]: super::Writer::disk_trouble

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::bound;
use super::journal::{Journal, Noted};
use super::merge::{Merging, Numbered};
use super::row::{EventRecord, Row};
use super::write::{Age, write};
use super::writer::{Incoming, Message, Queued, Told};
use crate::error::StoreError;
use crate::run_index::TurnEnded;
use crate::store::Store;

/// A transaction is made of this many records at most,
const BATCH: usize = 2048;

/// of no more than this most of the time,
const USUAL: usize = 64;

/// and of what comes within this time after the first.
const GATHER: Duration = Duration::from_millis(25);

/// How many ends of turns are kept for a disk that takes no writes,
const MAX_PARKED: usize = 256;

/// how much of the answer of each,
const MAX_PARKED_BYTES: usize = 64 * 1024;

/// and how often they are tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The other end of a [`Writer`](super::Writer), to be [run](Self::run) by whoever made both.
#[derive(Debug)]
pub struct Keeping {
    incoming: Incoming,
    store: Store,
    journal: Arc<Journal>,
    merging: Merging,
    batch: Vec<Row>,
    /// Ends of turns that the disk refused: without them a turn that is over would seem to go on.
    parked: Vec<Row>,
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
        self.incoming.room.close();
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

impl Keeping {
    pub(super) fn new(store: Store, incoming: Incoming, journal: Arc<Journal>) -> Self {
        Self {
            incoming,
            store,
            journal,
            merging: Merging::default(),
            batch: Vec::new(),
            parked: Vec::new(),
            taken: 0,
            noted: Noted::default(),
            told: Vec::new(),
            kept: Kept::default(),
            lost: None,
            failing: false,
            late: false,
        }
    }

    /// Keeps what is sent until all [`Writer`](super::Writer)s are gone or `stop` is cancelled, and then what is still queued.
    pub async fn run(mut self, stop: CancellationToken) -> Kept {
        while let Some(first) = self.next(&stop).await {
            let until = Instant::now() + GATHER;
            let mut flush = self.take(first);
            while flush.is_none() && self.batch.len() < BATCH {
                let message = async {
                    tokio::select! {
                        biased;
                        message = self.incoming.queue.recv() => message,
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
        let Incoming { queue, room, .. } = &mut self.incoming;
        if !queue.is_closed() {
            tokio::select! {
                message = queue.recv() => return message,
                () = sleep(RETRY), if !self.parked.is_empty() => {
                    let (retry, _nobody_waits) = oneshot::channel();
                    return Some(Queued(Message::Flush(retry), 0));
                }
                () = stop.cancelled() => {
                    room.close();
                    queue.close();
                }
            }
        }
        queue.recv().await
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
            Message::Told(row, noted, told) => {
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
        self.batch.push(Row::Event(EventRecord { run, sequence: numbered.sequence, event }));
    }

    async fn commit(&mut self, stop: &CancellationToken) {
        let taken = std::mem::take(&mut self.taken);
        if self.batch.is_empty() && self.parked.is_empty() {
            self.incoming.room.add_permits(taken);
            return;
        }
        let (mut batch, noted) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.noted));
        batch.splice(0..0, self.parked.drain(..));
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
                if changed > 0 {
                    self.incoming.trouble.set(None);
                }
            }
            // What comes after it must not be there before it, either.
            Err(StoreError::Busy(_) | StoreError::Closed) => self.late = true,
            Err(error) => {
                if matches!(error, StoreError::Disk(_)) {
                    self.incoming.trouble.set(Some(error.to_string()));
                    self.park(&mut batch);
                }
                if !batch.is_empty() {
                    self.lose(batch.len(), &error);
                }
            }
        }
        self.incoming.room.add_permits(taken);
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
                if self.incoming.stuck.swap(false, Ordering::Relaxed) {
                    tracing::info!("the database is free again");
                }
                return result;
            };
            if !self.incoming.stuck.swap(true, Ordering::Relaxed) {
                tracing::error!("{error}; another process keeps it locked, what is said meanwhile is written later");
            }
            if stop.is_cancelled() {
                tracing::error!("what waits for the database is left to the next one to open it");
                return Err(error);
            }
        }
    }

    /// Takes the ends of turns out of a batch that the disk refused.
    fn park(&mut self, batch: &mut Vec<Row>) {
        for row in std::mem::take(batch) {
            match row {
                Row::Ended(ended) if self.parked.len() < MAX_PARKED => {
                    let answer = bound::text(ended.answer, MAX_PARKED_BYTES);
                    self.parked.push(Row::Ended(TurnEnded { answer, ..ended }));
                }
                Row::Session { .. }
                | Row::Begun(_)
                | Row::Started(_)
                | Row::GoesOn(_)
                | Row::Workspace(_)
                | Row::Event(_)
                | Row::Ended(_) => batch.push(row),
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
