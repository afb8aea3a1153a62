//! Every turn goes into the archive, by whatever door it came: what was asked, what was done, what came of it.
//!
//! Nobody waits for it: records go into a bounded queue, and a disk that is too slow for them costs records, not time.
//! Secrets are masked here, over whole texts: the pieces they come in may cut a secret in two.

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
    LogState, Outcome, Record, SessionKey, Store, StoreError, Surface, Time, TurnBegun, TurnEnded, Writer,
};

use self::disk::DiskCheck;
use self::tally::TurnCounters;
use crate::runs::live::{ActiveRun, RunEnding, RunRegistration};
use crate::runs::log::RunLog;
use crate::runs::log_entry::CurrentAttempt;
use crate::runs::masking::{head, masked};
use crate::session::{Sent, whose};

/// A text that is longer than this goes on in another record.
const PIECE: usize = 16 * 1024;

/// The most that is kept of a turn's text as it came, of its prompt and of its answer: a CLI may print without end.
const TEXT: usize = 1024 * 1024;

/// The most that is kept of any other text of an event.
const DETAIL: usize = 64 * 1024;

/// How long whoever reads waits for what is still to be written.
const PATIENCE: Duration = Duration::from_secs(5);

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

    /// Opens it. What is sent from now on is kept. Gives the way into it.
    pub(crate) fn open(&self, store: &Store) -> Writer {
        let (_, writer) = self.kept.get_or_init(|| {
            let (writer, keeping) = store.writer();
            self.keeping.spawn(keeping.run(self.stop.clone()));
            (store.clone(), writer)
        });
        writer.clone()
    }

    /// What is kept, to be read.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.kept.get().map(|(store, _)| store)
    }

    /// Waits until what was sent so far can be read, though not for ever: somebody may keep the database locked.
    pub(crate) async fn flush(&self) {
        if let Some((_, writer)) = self.kept.get() {
            // What was lost was said.
            let _lost_or_late = timeout(PATIENCE, writer.flush()).await;
        }
    }

    /// How many records the disk was too slow for.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until everything is kept.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.keeping.close();
        self.keeping.wait().await;
        let lost = self.lost();
        if lost > 0 {
            tracing::error!(lost, "records of turns were lost: the disk was too slow for them");
        }
    }

    /// What an attempt left behind.
    pub(crate) async fn note_workspace(&self, run: &str, receipt: &Receipt) {
        if let Some((_, writer)) = self.kept.get() {
            let record = Record::Workspace { run: run.to_owned(), receipt: receipt.clone() };
            let _closed_at_the_end = writer.send(record).await;
        }
    }

    /// Why the last record could not be written to the disk; none once one could.
    pub(crate) async fn trouble(&self) -> Option<String> {
        let (store, writer) = self.kept.get()?;
        let _reason = writer.disk_trouble()?;
        match store.try_write().await {
            Ok(()) => {
                writer.disk_cured();
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Persists what a turn leaves behind, in the background: first its session, then `then`. Until the session is in the
    /// store only other processes wait for it.
    pub(crate) fn leave(
        &self,
        tracker: &TaskTracker,
        sent: impl Future<Output = Sent> + Send + 'static,
        then: impl Future<Output = ()> + Send + 'static,
    ) {
        let keeping = self.keeping.clone();
        tracker.spawn(async move {
            let sent = sent.await;
            then.await;
            keeping.spawn(sent.kept());
        });
    }

    /// Begins the record of a turn, on its way into the store.
    pub(crate) fn record(&self, begun: RunStart<'_>, log: RunLog, secrets: &Secrets) -> Recorder {
        let (recorder, row) = self.recorder(begun, log, secrets);
        if let Some(row) = row {
            recorder.send(row);
        }
        recorder.presence.set_recorded();
        recorder
    }

    /// Begins the record of a turn that is found by its name later: in the store when this returns. Where another process
    /// keeps the database locked it is in the journal, and follows.
    pub(crate) async fn record_surely(
        &self,
        begun: RunStart<'_>,
        log: RunLog,
        secrets: &Secrets,
    ) -> Result<Recorder, StoreError> {
        let (mut recorder, row) = self.recorder(begun, log, secrets);
        if let (Some(row), Some(writer)) = (row, recorder.writer.clone())
            && let Ok(Err(error)) = timeout(PATIENCE, writer.send_surely(row)).await
        {
            recorder.ended = true;
            return Err(error);
        }
        recorder.presence.set_recorded();
        Ok(recorder)
    }

    fn recorder(&self, begun: RunStart<'_>, log: RunLog, secrets: &Secrets) -> (Recorder, Option<Record>) {
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
            room: TEXT,
            usage: Usage::default(),
            ended: false,
        };
        let turn = begun.turn;
        let row = recorder.writer.is_some().then(|| {
            Record::Begun(TurnBegun {
                run: recorder.presence.id.clone(),
                session: begun.session.map(|session| SessionKey(session.0.clone())),
                owner: whose(&turn.owner),
                surface: surface(turn.surface),
                place: begun.place,
                model: turn.model.clone(),
                prompt: secrets.mask(head(&prompt::told(turn), TEXT)),
                time: Time::now(),
                gateway: begun.gateway.to_owned(),
                detached: begun.detached,
            })
        });
        (recorder, row)
    }
}

/// A turn that is about to run.
pub(crate) struct RunStart<'a> {
    pub(crate) presence: Arc<RunRegistration>,
    /// One that is in the store already.
    pub(crate) session: Option<&'a SessionId>,
    /// Where it works.
    pub(crate) place: String,
    /// The provider that is to be asked first.
    pub(crate) provider: String,
    pub(crate) turn: &'a Turn,
    /// The mark of this process.
    pub(crate) gateway: &'a str,
    pub(crate) detached: bool,
}

/// The record of one turn: its log, and what the archive has of it. One that is dropped before its end was given up.
pub(crate) struct Recorder {
    /// The provider of the present attempt, or of the one to come.
    provider: String,
    writer: Option<Writer>,
    log: RunLog,
    presence: Arc<RunRegistration>,
    attempts: u32,
    /// The last event is in the log, or was to be.
    logged_end: bool,
    lost: Arc<AtomicU64>,
    tally: Arc<TurnCounters>,
    secrets: Secrets,
    began: Instant,
    events: u64,
    /// A text that may go on.
    piece: Option<Event>,
    /// How much more text is kept.
    room: usize,
    usage: Usage,
    ended: bool,
}

impl Recorder {
    pub(crate) fn live(&self) -> Arc<ActiveRun> {
        Arc::clone(&self.presence)
    }

    /// The turn was found to be part of a session, of which it says less than it seemed.
    pub(crate) fn goes_on(&self, session: &SessionId, turn: &Turn) {
        let (run, session) = (self.presence.id.clone(), SessionKey(session.0.clone()));
        self.send(Record::GoesOn { run, session, prompt: self.secrets.mask(head(&prompt::told(turn), TEXT)) });
    }

    /// The first attempt runs. While its CLI comes up there is time for the log's file.
    pub(crate) fn started(&mut self, provider: &str) {
        self.log.create_file();
        provider.clone_into(&mut self.provider);
        let (run, provider, time) = (self.presence.id.clone(), provider.to_owned(), Time::now());
        self.send(Record::Started { run, provider, time });
    }

    /// Events that came together. They are in the log when this returns, unless the disk is full.
    pub(crate) fn hear(&mut self, events: &[Event], by: &CurrentAttempt) {
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
                if text.len() < PIECE =>
            {
                text.push_str(delta);
                return;
            }
            _ => self.let_go(),
        }
        match event {
            Event::Text { .. } | Event::Thinking { .. } => self.piece = Some(event.clone()),
            // They are the end of the record itself.
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

    /// Whether there is room for an event; only pieces of text take any.
    fn has_room(&mut self, event: &Event) -> bool {
        let (Event::Text { delta } | Event::Thinking { delta }) = event else { return true };
        let Some(left) = self.room.checked_sub(delta.len()) else {
            if std::mem::take(&mut self.room) > 0 {
                self.let_go();
                self.keep(&Event::Notice { message: "the rest of the text is not kept here".to_owned() });
            }
            return false;
        };
        self.room = left;
        true
    }

    /// The text so far is whole.
    fn let_go(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.keep(&piece);
        }
    }

    fn keep(&mut self, event: &Event) {
        let event = masked(event, &self.secrets, DETAIL);
        let sequence = self.events;
        self.events += 1;
        self.send(Record::Event { run: self.presence.id.clone(), sequence, event });
    }

    /// The end, as the record to send: after that of its session, which it belongs to.
    pub(crate) fn end(mut self, end: RunEnd<'_>) -> impl Future<Output = ()> + Send + use<> {
        let (ended, presence) = (self.ended(end), Arc::clone(&self.presence));
        async move {
            if let Some((writer, ended)) = ended {
                let _closed_at_the_end = writer.send(ended).await;
            }
            // Until now it was known to be on its way; from here on its row says how it ended.
            drop(presence);
        }
    }

    fn ended(&mut self, end: RunEnd<'_>) -> Option<(Writer, Record)> {
        self.ended = true;
        self.let_go();
        self.close_log(end.result);
        self.presence.set_concluding();
        let (outcome, text) = match end.result {
            Ok(answer) => {
                self.usage = answer.usage;
                (Outcome::Ok, &answer.content)
            }
            Err(failure) => (Outcome::Failed(failure.category), &failure.message),
        };
        let took = self.began.elapsed();
        // One that ended before any attempt ran is counted with the provider that it was for.
        let counted = if end.provider.is_empty() { &self.provider } else { end.provider };
        self.tally.ended(counted, outcome.name(), took);
        let ended = TurnEnded {
            run: self.presence.id.clone(),
            provider: end.provider.to_owned(),
            outcome,
            answer: self.secrets.mask(head(text, TEXT)),
            usage: self.usage,
            duration: took,
            session: end.session.map(|session| SessionKey(session.0.clone())),
            time: Time::now(),
            attempts: self.attempts,
            log: Some(self.log.state()),
        };
        Some((self.writer.take()?, Record::Ended(ended)))
    }

    /// Whoever looks on learns of the end: from the log, or where that has none, from us.
    fn close_log(&mut self, result: Result<&Answer, &Failure>) {
        if self.logged_end && self.log.state() == LogState::Complete {
            return;
        }
        let last = match result {
            Ok(answer) => Event::Finished(answer.clone()),
            Err(failure) => Event::Failed(failure.clone()),
        };
        // One that never began needs no file.
        if !self.logged_end && !self.log.is_empty() {
            let written = self.log.append([&last], &CurrentAttempt::default());
            self.presence.set_written(written);
        }
        self.presence.set_end(RunEnding::Event(Arc::new(last)));
    }

    fn send(&self, record: Record) {
        let Some(writer) = &self.writer else { return };
        if writer.try_send(record).is_err() && self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!("the disk is too slow for the archive: records of turns are lost");
        }
    }
}

/// How a turn ended.
pub(crate) struct RunEnd<'a> {
    pub(crate) provider: &'a str,
    pub(crate) session: Option<&'a SessionId>,
    pub(crate) result: Result<&'a Answer, &'a Failure>,
}

/// Nobody waited for the end.
pub(crate) fn given_up() -> Failure {
    Failure::new(Category::Cancelled, "given up by whoever asked")
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.ended
            && let Some((writer, ended)) = self.ended(RunEnd { provider: "", session: None, result: Err(&given_up()) })
        {
            let _full_is_full = writer.try_send(ended);
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
