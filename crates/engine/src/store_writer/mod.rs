//! Records of every turn in the store: the request, its events and its outcome.
//!
//! Turns do not wait for the store: records go into a bounded queue, and a disk that is too slow loses records instead of delaying
//! answers. Secrets are masked here, over whole texts, because a secret may be split between two pieces of a stream.

mod disk;
pub(crate) mod tally;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trunkline_core::event::{Answer, Event, Receipt, SessionId, Usage};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::prompt;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{self, Turn};
use trunkline_store::{
    ArchiveRecord, LogState, RunOutcome, SessionKey, Store, StoreError, Surface, Time, TurnBegun, TurnEnded, Writer,
};

use self::disk::DiskCheck;
use self::tally::TurnCounters;
use crate::runs::live::{ActiveRun, RunEnding, RunRegistration};
use crate::runs::log::RunLog;
use crate::runs::log_entry::CurrentAttempt;
use crate::runs::masking::{head, masked};
use crate::session::{SessionWrite, store_client_id};

/// Text length after which a new record begins.
const MAX_PIECE_BYTES: usize = 16 * 1024;

/// Maximum length that is recorded of a turn's streamed text, of its prompt and of its answer: a CLI may print without end.
const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// Maximum length of any other text of an event.
const MAX_DETAIL_BYTES: usize = 64 * 1024;

/// Time that a reader waits for queued records to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The way into the archive, once there is one.
pub(crate) struct StoreWriter {
    kept: OnceLock<(Store, Writer)>,
    lost: Arc<AtomicU64>,
    pub(crate) tally: Arc<TurnCounters>,
    stop: CancellationToken,
    keeping: TaskTracker,
    disk: DiskCheck,
}

impl StoreWriter {
    /// A writer without a store: records are dropped until [`open`](Self::open).
    pub(crate) fn new(state: &Path) -> Self {
        Self {
            kept: OnceLock::new(),
            lost: Arc::default(),
            tally: Arc::default(),
            stop: CancellationToken::new(),
            keeping: TaskTracker::new(),
            disk: DiskCheck::new(state),
        }
    }

    /// Records go to this store from now on. Returns the writer.
    pub(crate) fn open(&self, store: &Store) -> Writer {
        let (_, writer) = self.kept.get_or_init(|| {
            let (writer, keeping) = store.writer();
            self.keeping.spawn(keeping.run(self.stop.clone()));
            (store.clone(), writer)
        });
        writer.clone()
    }

    /// The store, for reading.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.kept.get().map(|(store, _)| store)
    }

    /// Waits until queued records can be read, for at most [`FLUSH_TIMEOUT`]: another process may hold a lock on the database.
    pub(crate) async fn flush(&self) {
        if let Some((_, writer)) = self.kept.get() {
            // A loss is logged where it happens.
            let _ = timeout(FLUSH_TIMEOUT, writer.flush()).await;
        }
    }

    /// Number of records lost because the disk was too slow.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes all queued records and stops the writer task.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.keeping.close();
        self.keeping.wait().await;
        let lost = self.lost();
        if lost > 0 {
            tracing::error!(lost, "records of turns were lost: the disk was too slow for them");
        }
    }

    /// Records the receipt of an attempt.
    pub(crate) async fn note_workspace(&self, run: &str, receipt: &Receipt) {
        if let Some((_, writer)) = self.kept.get() {
            let record = ArchiveRecord::Workspace { run: run.to_owned(), receipt: receipt.clone() };
            // Fails only during shutdown.
            let _ = writer.send(record).await;
        }
    }

    /// Reason why the last record could not be written; `None` once a record could be written.
    pub(crate) async fn trouble(&self) -> Option<String> {
        let (store, writer) = self.kept.get()?;
        writer.disk_trouble()?;
        match store.try_write().await {
            Ok(()) => {
                writer.disk_cured();
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Persists what a turn leaves behind, in the background: first its session, then `then`. The next turn of the
    /// session in this process does not wait for that; turns in other processes do.
    pub(crate) fn leave(
        &self,
        tracker: &TaskTracker,
        sent: impl Future<Output = SessionWrite> + Send + 'static,
        then: impl Future<Output = ()> + Send + 'static,
    ) {
        let keeping = self.keeping.clone();
        tracker.spawn(async move {
            let sent = sent.await;
            then.await;
            keeping.spawn(sent.saved());
        });
    }

    /// Begins the record of a turn. The record is queued when this returns.
    pub(crate) fn record(&self, begun: RunStart<'_>, log: RunLog, secrets: &Secrets) -> Recorder {
        let (recorder, row) = self.recorder(begun, log, secrets);
        if let Some(row) = row {
            recorder.send(row);
        }
        recorder.presence.set_recorded();
        recorder
    }

    /// Begins the record of a turn that a client will look up by its id. The record is in the store when this returns; if another
    /// process holds a lock on the database, it is in the journal and is written to the store later.
    pub(crate) async fn record_durably(
        &self,
        begun: RunStart<'_>,
        log: RunLog,
        secrets: &Secrets,
    ) -> Result<Recorder, StoreError> {
        let (mut recorder, row) = self.recorder(begun, log, secrets);
        if let (Some(row), Some(writer)) = (row, recorder.writer.clone())
            && let Ok(Err(error)) = timeout(FLUSH_TIMEOUT, writer.send_surely(row)).await
        {
            recorder.ended = true;
            return Err(error);
        }
        recorder.presence.set_recorded();
        Ok(recorder)
    }

    fn recorder(&self, begun: RunStart<'_>, log: RunLog, secrets: &Secrets) -> (Recorder, Option<ArchiveRecord>) {
        let recorder = Recorder {
            provider: begun.provider,
            writer: self.kept.get().map(|(_, writer)| writer.clone()),
            log,
            attempts: 0,
            logged_end: false,
            lost: Arc::clone(&self.lost),
            tally: Arc::clone(&self.tally),
            secrets: secrets.clone(),
            presence: begun.presence,
            began: Instant::now(),
            events: 0,
            piece: None,
            room: MAX_TEXT_BYTES,
            usage: Usage::default(),
            ended: false,
        };
        let turn = begun.turn;
        let row = recorder.writer.is_some().then(|| {
            ArchiveRecord::Begun(TurnBegun {
                run: recorder.presence.id.clone(),
                session: begun.session.map(|session| SessionKey(session.0.clone())),
                owner: store_client_id(&turn.owner),
                surface: surface(turn.surface),
                place: begun.place,
                model: turn.model.clone(),
                prompt: secrets.mask(head(&prompt::turn_text(turn), MAX_TEXT_BYTES)),
                time: Time::now(),
                gateway: begun.gateway.to_owned(),
                detached: begun.detached,
            })
        });
        (recorder, row)
    }
}

/// A turn that is about to start.
pub(crate) struct RunStart<'a> {
    pub(crate) presence: Arc<RunRegistration>,
    /// A session that is in the store already.
    pub(crate) session: Option<&'a SessionId>,
    /// Folder in which the turn works.
    pub(crate) place: String,
    /// Provider of the first candidate.
    pub(crate) provider: String,
    pub(crate) turn: &'a Turn,
    /// Mark of this gateway process.
    pub(crate) gateway: &'a str,
    pub(crate) detached: bool,
}

/// The record of one turn: its run log, and its rows in the store. Dropping it before the end records a cancelled turn.
pub(crate) struct Recorder {
    /// Provider of the present attempt, or of the next one.
    provider: String,
    writer: Option<Writer>,
    log: RunLog,
    presence: Arc<RunRegistration>,
    attempts: u32,
    /// Whether the last event was passed to the log.
    logged_end: bool,
    lost: Arc<AtomicU64>,
    tally: Arc<TurnCounters>,
    secrets: Secrets,
    began: Instant,
    events: u64,
    /// Text to which the next delta may be appended.
    piece: Option<Event>,
    /// Remaining bytes of text to record.
    room: usize,
    usage: Usage,
    ended: bool,
}

impl Recorder {
    pub(crate) fn live(&self) -> Arc<ActiveRun> {
        Arc::clone(&self.presence)
    }

    /// Records that the turn continues a session, so its prompt is only the new part.
    pub(crate) fn continues(&self, session: &SessionId, turn: &Turn) {
        let (run, session) = (self.presence.id.clone(), SessionKey(session.0.clone()));
        self.send(ArchiveRecord::GoesOn {
            run,
            session,
            prompt: self.secrets.mask(head(&prompt::turn_text(turn), MAX_TEXT_BYTES)),
        });
    }

    /// Records that the first attempt has started. Creates the log file while the CLI starts.
    pub(crate) fn started(&mut self, provider: &str) {
        self.log.create_file();
        provider.clone_into(&mut self.provider);
        let (run, provider, time) = (self.presence.id.clone(), provider.to_owned(), Time::now());
        self.send(ArchiveRecord::Started { run, provider, time });
    }

    /// Records a batch of events. They are in the log when this returns, unless the disk is full.
    pub(crate) fn events(&mut self, events: &[Event], by: &CurrentAttempt) {
        let written = self.log.append(events, by);
        self.presence.set_written(written);
        for event in events {
            self.logged_end |= event.is_end();
            self.attempts += u32::from(matches!(event, Event::Attempted(_)));
            self.archive(event);
        }
    }

    fn archive(&mut self, event: &Event) {
        if self.writer.is_none() || !self.has_room(event) {
            return;
        }
        match (&mut self.piece, event) {
            (Some(Event::Text { delta: text }), Event::Text { delta })
            | (Some(Event::Thinking { delta: text }), Event::Thinking { delta })
                if text.len() < MAX_PIECE_BYTES =>
            {
                text.push_str(delta);
                return;
            }
            _ => self.flush_text(),
        }
        match event {
            Event::Text { .. } | Event::Thinking { .. } => self.piece = Some(event.clone()),
            // The end has a record of its own.
            Event::Finished(_) | Event::Failed(_) => {}
            Event::Started { .. }
            | Event::ToolStarted { .. }
            | Event::ToolFinished { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_) => self.keep(event),
        }
    }

    /// Whether an event is within the limit; only text counts.
    fn has_room(&mut self, event: &Event) -> bool {
        let (Event::Text { delta } | Event::Thinking { delta }) = event else { return true };
        let Some(left) = self.room.checked_sub(delta.len()) else {
            if std::mem::take(&mut self.room) > 0 {
                self.flush_text();
                self.keep(&Event::Notice { message: "the rest of the text is not kept here".to_owned() });
            }
            return false;
        };
        self.room = left;
        true
    }

    /// Records the text collected so far.
    fn flush_text(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.keep(&piece);
        }
    }

    fn keep(&mut self, event: &Event) {
        let event = masked(event, &self.secrets, MAX_DETAIL_BYTES);
        let sequence = self.events;
        self.events += 1;
        self.send(ArchiveRecord::Event { run: self.presence.id.clone(), sequence, event });
    }

    /// Ends the record. The future sends it; it must run after the record of its session was sent.
    pub(crate) fn end(mut self, end: RunEnd<'_>) -> impl Future<Output = ()> + Send + use<> {
        let (ended, presence) = (self.ended(end), Arc::clone(&self.presence));
        async move {
            if let Some((writer, ended)) = ended {
                // Fails only during shutdown.
                let _ = writer.send(ended).await;
            }
            // From here on queries read the outcome from the row instead of the registry.
            drop(presence);
        }
    }

    fn ended(&mut self, end: RunEnd<'_>) -> Option<(Writer, ArchiveRecord)> {
        self.ended = true;
        self.flush_text();
        self.close_log(end.result);
        self.presence.set_concluding();
        let (outcome, text) = match end.result {
            Ok(answer) => {
                self.usage = answer.usage;
                (RunOutcome::Ok, &answer.content)
            }
            Err(failure) => (RunOutcome::Failed(failure.category), &failure.message),
        };
        let took = self.began.elapsed();
        // A turn that ended before any attempt is counted for its first candidate.
        let counted = if end.provider.is_empty() { &self.provider } else { end.provider };
        self.tally.ended(counted, outcome.name(), took);
        let ended = TurnEnded {
            run: self.presence.id.clone(),
            provider: end.provider.to_owned(),
            outcome,
            answer: self.secrets.mask(head(text, MAX_TEXT_BYTES)),
            usage: self.usage,
            duration: took,
            session: end.session.map(|session| SessionKey(session.0.clone())),
            time: Time::now(),
            attempts: self.attempts,
            log: Some(self.log.state()),
        };
        Some((self.writer.take()?, ArchiveRecord::Ended(ended)))
    }

    /// Makes the end visible to readers: in the log or, if the log is incomplete, through the registry.
    fn close_log(&mut self, result: Result<&Answer, &Failure>) {
        if self.logged_end && self.log.state() == LogState::Complete {
            return;
        }
        let last = match result {
            Ok(answer) => Event::Finished(answer.clone()),
            Err(failure) => Event::Failed(failure.clone()),
        };
        // A run that never began has no log file.
        if !self.logged_end && !self.log.is_empty() {
            let written = self.log.append([&last], &CurrentAttempt::default());
            self.presence.set_written(written);
        }
        self.presence.set_end(RunEnding::Event(Arc::new(last)));
    }

    fn send(&self, record: ArchiveRecord) {
        let Some(writer) = &self.writer else { return };
        if writer.try_send(record).is_err() && self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!("the disk is too slow: records of turns are lost");
        }
    }
}

/// The end of a turn.
pub(crate) struct RunEnd<'a> {
    pub(crate) provider: &'a str,
    pub(crate) session: Option<&'a SessionId>,
    pub(crate) result: Result<&'a Answer, &'a Failure>,
}

/// The failure of a run whose client disconnected.
pub(crate) fn cancelled_by_client() -> Failure {
    Failure::new(Category::Cancelled, "cancelled by the client")
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.ended
            && let Some((writer, ended)) =
                self.ended(RunEnd { provider: "", session: None, result: Err(&cancelled_by_client()) })
        {
            // A full queue loses the record.
            let _ = writer.try_send(ended);
        }
    }
}

fn surface(surface: turn::Surface) -> Surface {
    match surface {
        turn::Surface::Http => Surface::Http,
        turn::Surface::Run => Surface::Run,
        turn::Surface::Repl => Surface::Repl,
        turn::Surface::Page => Surface::Page,
        turn::Surface::Discord => Surface::Discord,
    }
}

#[cfg(test)]
mod tests;
