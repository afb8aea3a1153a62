//! The task that writes queued records to the database: many records in one transaction.
//!
//! | The database is | The task |
//! |---|---|
//! | locked by another process | retries until it is free. Records wait in the queue and in the journal |
//! | locked when the task is to stop | leaves the rest in the journal, for the next process to open the database |
//! | refused by the disk (full, read-only) | loses the batch, except for ends of turns, which it retries |
//! | damaged | loses the batch, and has the file checked by the next process to open it |
//!
//! A loss is logged once until a write succeeds. Callers that start turns can see a failing disk
//! ([`Writer::disk_trouble`]).
//!
//! [`Writer::disk_trouble`]: super::Writer::disk_trouble

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::bound;
use super::journal::{Journal, JournalCounts};
use super::merge::{DeltaMerger, NumberedEvent};
use super::pending::{EventRecord, PendingRecord};
use super::write::{RecordOrigin, write};
use super::writer::{CommitReply, QueuedRecord, WriterMessage, WriterQueue};
use crate::error::StoreError;
use crate::run_index::TurnEnded;
use crate::store::Store;

/// Limit of the records in one transaction.
const MAX_BATCH_RECORDS: usize = 2048;

/// Size of most batches. Memory for more is released after a batch.
const USUAL_BATCH_RECORDS: usize = 64;

/// Time after the first record of a batch in which others are added to it.
const BATCH_DELAY: Duration = Duration::from_millis(25);

/// Limit of the ends of turns that are retried because the disk refused them.
const MAX_PARKED: usize = 256;

/// Limit of the answer of each of them.
const MAX_PARKED_BYTES: usize = 64 * 1024;

/// Interval at which they are retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The receiving end of a [`Writer`](super::Writer). The caller that created both has to [run](Self::run) it.
#[derive(Debug)]
pub struct WriterTask {
    queue: WriterQueue,
    store: Store,
    journal: Arc<Journal>,
    merger: DeltaMerger,
    batch: Vec<PendingRecord>,
    /// Ends of turns that the disk refused. If they were lost, the turns would seem to be running forever.
    parked: Vec<PendingRecord>,
    /// Room that the batch takes in the queue.
    batch_bytes: usize,
    /// The journal's share of the batch.
    batch_counts: JournalCounts,
    totals: ArchiveTotals,
    /// Senders that wait for the batch.
    replies: Vec<CommitReply>,
    /// Reason why records were lost since the last flush.
    lost: Option<String>,
    /// Whether the last transaction failed. Only the first failure is logged, because the log may be on the same disk.
    failing: bool,
    /// Whether the database was locked until the end, so that the rest is left in the journal.
    late: bool,
}

impl Drop for WriterTask {
    /// Senders must not wait for room any more.
    fn drop(&mut self) {
        self.queue.room.close();
    }
}

/// Totals of a [`WriterTask`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArchiveTotals {
    /// Records that were written. Merged deltas count as one.
    pub rows: u64,
    /// Records that the database refused.
    pub lost: u64,
}

impl WriterTask {
    pub(super) fn new(store: Store, queue: WriterQueue, journal: Arc<Journal>) -> Self {
        Self {
            queue,
            store,
            journal,
            merger: DeltaMerger::default(),
            batch: Vec::new(),
            parked: Vec::new(),
            batch_bytes: 0,
            batch_counts: JournalCounts::default(),
            replies: Vec::new(),
            totals: ArchiveTotals::default(),
            lost: None,
            failing: false,
            late: false,
        }
    }

    /// Writes records until all [`Writer`](super::Writer)s are dropped or `stop` is cancelled, and then what is still
    /// queued.
    pub async fn run(mut self, stop: CancellationToken) -> ArchiveTotals {
        while let Some(first) = self.next(&stop).await {
            let until = Instant::now() + BATCH_DELAY;
            let mut flush = self.take(first);
            while flush.is_none() && self.batch.len() < MAX_BATCH_RECORDS {
                let message = async {
                    tokio::select! {
                        biased;
                        message = self.queue.messages.recv() => message,
                        () = stop.cancelled() => None,
                    }
                };
                match timeout_at(until, message).await {
                    Ok(Some(message)) => flush = self.take(message),
                    Ok(None) | Err(_) => break,
                }
            }
            self.commit(&stop).await;
            if let Some(reply) = flush {
                let result = self.lost.take().map_or(Ok(()), |why| Err(StoreError::Lost(why)));
                let _ = reply.send(result);
            }
        }
        self.close_texts();
        self.commit(&stop).await;
        self.journal.close();
        self.totals
    }

    /// Returns the next message. While ends of turns are parked, a flush makes up for a missing one. Cancel safe.
    async fn next(&mut self, stop: &CancellationToken) -> Option<QueuedRecord> {
        let WriterQueue { messages, room, .. } = &mut self.queue;
        if !messages.is_closed() {
            tokio::select! {
                message = messages.recv() => return message,
                () = sleep(RETRY_INTERVAL), if !self.parked.is_empty() => {
                    let (reply, _) = oneshot::channel();
                    return Some(QueuedRecord { message: WriterMessage::Flush(reply), bytes: 0 });
                }
                () = stop.cancelled() => {
                    room.close();
                    messages.close();
                }
            }
        }
        messages.recv().await
    }

    /// Adds a message to the batch. Returns the sender of a flush.
    fn take(&mut self, QueuedRecord { message, bytes }: QueuedRecord) -> Option<CommitReply> {
        self.batch_bytes += bytes;
        match message {
            WriterMessage::Flush(reply) => {
                self.close_texts();
                return Some(reply);
            }
            WriterMessage::Delta { run, sequence, event } => {
                if let Some(complete) = self.merger.add(&run, sequence, event) {
                    self.push_event(run, &complete);
                }
            }
            WriterMessage::Record(record, counts) => {
                self.batch_counts.add(counts);
                if let Some(complete) = self.merger.end(record.subject()) {
                    self.push_event(record.subject().to_owned(), &complete);
                }
                self.batch.push(record);
            }
            WriterMessage::Awaited(record, counts, reply) => {
                self.batch_counts.add(counts);
                self.batch.push(record);
                self.replies.push(reply);
            }
        }
        None
    }

    /// Adds all open texts to the batch.
    fn close_texts(&mut self) {
        let open: Vec<_> = self.merger.drain().collect();
        for (run, numbered) in open {
            self.push_event(run, &numbered);
        }
    }

    fn push_event(&mut self, run: String, numbered: &NumberedEvent) {
        let event = bound::event(&numbered.event);
        self.batch.push(PendingRecord::Event(EventRecord { run, sequence: numbered.sequence, event }));
    }

    async fn commit(&mut self, stop: &CancellationToken) {
        let bytes = std::mem::take(&mut self.batch_bytes);
        if self.batch.is_empty() && self.parked.is_empty() {
            self.queue.room.add_permits(bytes);
            return;
        }
        let (mut batch, counts) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.batch_counts));
        batch.splice(0..0, self.parked.drain(..));
        let result = if self.late { Err(StoreError::Closed) } else { self.write(&batch, stop).await };
        for reply in self.replies.drain(..) {
            let result = result.as_ref().map_or_else(|error| Err(StoreError::Lost(error.to_string())), |_| Ok(()));
            let _ = reply.send(result);
        }
        match result {
            Ok(changed) => {
                self.totals.rows += batch.len() as u64;
                // Records of a turn that was lost change no row, so they do not show that the disk accepts writes.
                self.failing &= changed == 0;
                if changed > 0 {
                    self.queue.disk_error.set(None);
                }
            }
            // Later records must not be written before this batch.
            Err(StoreError::Busy(_) | StoreError::Closed) => self.late = true,
            Err(error) => {
                if matches!(error, StoreError::Disk(_)) {
                    self.queue.disk_error.set(Some(error.to_string()));
                    self.park(&mut batch);
                }
                if !batch.is_empty() {
                    self.lose(batch.len(), &error);
                }
            }
        }
        self.queue.room.add_permits(bytes);
        // Lost records leave the journal, too: it needs the room for records that can be written.
        if !self.late {
            self.journal.settle(counts);
        }
        // Reuse the memory for the next batch, unless this one was exceptionally large.
        self.batch = batch;
        self.batch.clear();
        self.batch.shrink_to(USUAL_BATCH_RECORDS);
        self.replies.shrink_to(USUAL_BATCH_RECORDS);
    }

    /// Writes a batch. While another process holds the lock, retries without limit: the records are in the journal, and
    /// order is kept. Once `stop` is cancelled, the wait is no longer than SQLite's own timeout.
    async fn write(&self, batch: &[PendingRecord], stop: &CancellationToken) -> Result<u64, StoreError> {
        loop {
            let result = write(&self.store, batch, RecordOrigin::Live).await;
            let Err(error @ StoreError::Busy(_)) = result else {
                if self.queue.blocked.swap(false, Ordering::Relaxed) {
                    tracing::info!("the database is free again");
                }
                return result;
            };
            if !self.queue.blocked.swap(true, Ordering::Relaxed) {
                tracing::error!("{error}; another process keeps it locked, records are written once it is free");
            }
            if stop.is_cancelled() {
                tracing::error!("the database is locked: queued records are left in the journal for the next start");
                return Err(error);
            }
        }
    }

    /// Moves the ends of turns out of a batch that the disk refused, to retry them.
    fn park(&mut self, batch: &mut Vec<PendingRecord>) {
        for record in std::mem::take(batch) {
            match record {
                PendingRecord::Ended(ended) if self.parked.len() < MAX_PARKED => {
                    let answer = bound::text(ended.answer, MAX_PARKED_BYTES);
                    self.parked.push(PendingRecord::Ended(TurnEnded { answer, ..ended }));
                }
                PendingRecord::Session { .. }
                | PendingRecord::Begun(_)
                | PendingRecord::Started(_)
                | PendingRecord::Continued(_)
                | PendingRecord::Workspace(_)
                | PendingRecord::Event(_)
                | PendingRecord::Ended(_) => batch.push(record),
            }
        }
    }

    fn lose(&mut self, count: usize, why: &StoreError) {
        self.totals.lost += count as u64;
        if !self.failing {
            tracing::error!(
                "the archive lost {count} records, {} in total, and may lose more: {why}",
                self.totals.lost
            );
        }
        self.failing = true;
        self.lost = Some(why.to_string());
        if matches!(why, StoreError::Broken(_)) {
            self.store.mark_suspect();
        }
    }
}
