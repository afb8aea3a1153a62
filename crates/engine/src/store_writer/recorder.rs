//! The record of one turn.

use std::io;
use std::sync::Arc;

use tokio::time::Instant;
use trunkline_core::event::{Answer, Event, SessionId, Usage};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::prompt;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{self, Turn};
use trunkline_store::{
    CurrentAttempt, IndexFeed, KeyClaim, LogRecord, LogState, Purpose, RunAccepted, RunContinued, RunEnded, RunOutcome,
    RunRow, RunStarted, SessionKey, Surface, Time,
};

use super::StoreWriter;
use super::tally::TurnCounters;
use crate::runs::live::{ActiveRun, RunEnding, RunRegistration};
use crate::runs::log::RunLog;
use crate::runs::masking::{head, masked_json};
use crate::session::{SessionWrite, store_client_id};

/// Maximum length that is recorded of a prompt.
const MAX_PROMPT_BYTES: usize = 1024 * 1024;

/// Maximum length that is recorded of a failure's message, outside of its event.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// A turn that is about to start.
pub(crate) struct RunStart<'a> {
    pub(crate) presence: Arc<RunRegistration>,
    /// The session that the client names.
    pub(crate) session: Option<&'a SessionId>,
    /// Folder in which the turn works.
    pub(crate) place: String,
    /// Provider of the first candidate.
    pub(crate) provider: String,
    pub(crate) turn: &'a Turn,
    /// Mark of this gateway process.
    pub(crate) gateway: &'a str,
    pub(crate) detached: bool,
    pub(crate) key: Option<KeyClaim>,
}

/// The record of one turn. Dropping it before the end records a cancelled turn.
pub(crate) struct Recorder {
    /// Provider of the present attempt, or of the next one.
    provider: String,
    feed: Option<IndexFeed>,
    log: RunLog,
    presence: Arc<RunRegistration>,
    attempts: u32,
    /// Whether the last event was passed to the log.
    logged_end: bool,
    /// Whether an attempt has started.
    started: bool,
    keyed: bool,
    tally: Arc<TurnCounters>,
    secrets: Secrets,
    began: Instant,
    ended: bool,
}

/// The end of a turn.
pub(crate) struct RunEnd<'a> {
    pub(crate) provider: &'a str,
    pub(crate) session: Option<&'a SessionId>,
    pub(crate) result: Result<&'a Answer, &'a Failure>,
    /// The session after the turn.
    pub(crate) write: Option<SessionWrite>,
}

/// The failure of a run whose end could not be written to the log.
pub(crate) fn not_recorded(error: &io::Error) -> Failure {
    let failure = Failure::new(Category::Server, format!("the answer could not be recorded: {error}"));
    failure.hint("free space on the disk of the state folder")
}

/// The failure of a run whose client disconnected.
pub(crate) fn cancelled_by_client() -> Failure {
    Failure::new(Category::Cancelled, "cancelled by the client")
}

impl StoreWriter {
    /// Begins the record of a turn. The turn is in the log when this returns. On an error, it can run only without a record.
    pub(crate) fn record(&self, begun: RunStart<'_>, secrets: &Secrets) -> (Recorder, io::Result<()>) {
        let (turn, presence) = (begun.turn, begun.presence);
        let accepted = RunAccepted {
            at: Time::now(),
            owner: store_client_id(&turn.owner),
            surface: surface(turn.surface),
            place: begun.place,
            model: turn.model.clone(),
            prompt: secrets.mask(head(&prompt::turn_text(turn), MAX_PROMPT_BYTES)),
            session: begun.session.map(|session| SessionKey((*session.0).to_owned())),
            gateway: begun.gateway.to_owned(),
            detached: begun.detached,
            key: begun.key,
            side: turn.side.as_deref().map(str::to_owned),
            request: turn.request.as_ref().and_then(|request| masked_json(request.as_raw(), secrets)),
        };
        let mut log = RunLog::new(Arc::clone(&self.log), &presence.id, secrets.clone(), presence.extents());
        let feed = self.feed().cloned();
        let record = LogRecord::Accepted(accepted.into());
        let written = log.accept(&record, |extent| {
            if let (Some(feed), LogRecord::Accepted(accepted)) = (&feed, &record) {
                feed.add(RunRow::accepted(&presence.id, accepted, extent.position()));
            }
        });
        let recorder = Recorder {
            provider: begun.provider,
            feed,
            log,
            presence,
            attempts: 0,
            logged_end: false,
            started: false,
            keyed: begun.key.is_some(),
            tally: Arc::clone(&self.tally),
            secrets: secrets.clone(),
            began: Instant::now(),
            ended: false,
        };
        (recorder, written)
    }

    /// Ends a record. The outcome and the session are in the log when this returns.
    pub(crate) fn end(&self, mut recorder: Recorder, end: RunEnd<'_>) -> io::Result<()> {
        let RunEnd { provider, session, result, write } = end;
        let (written, queued) = recorder.end(provider, session, result, write.as_ref());
        if let Some(write) = write {
            self.wait_until_indexed(write, queued);
        }
        written
    }
}

impl Recorder {
    pub(crate) fn live(&self) -> Arc<ActiveRun> {
        Arc::clone(&self.presence)
    }

    /// Marks the run as accepted: its client can be told so.
    pub(crate) fn set_recorded(&self) {
        self.presence.set_recorded();
    }

    /// Discards the record of a turn that is refused because it cannot be recorded.
    pub(crate) fn discard(mut self) {
        self.ended = true;
    }

    /// Records that the turn continues a session, so its prompt is only the new part.
    pub(crate) fn continues(&mut self, session: &SessionId, turn: &Turn) {
        let prompt = self.secrets.mask(head(&prompt::turn_text(turn), MAX_PROMPT_BYTES));
        let session = SessionKey((*session.0).to_owned());
        let record = LogRecord::Continued(RunContinued { at: Time::now(), session, prompt });
        self.log.push(&record);
        // Before the CLI starts: a head that leads to the session is outdated from now on.
        let (feed, run) = (&self.feed, &self.presence.id);
        // A failure is logged, and marks the log as incomplete.
        let _ = self.log.write(Purpose::Continue, |_| {
            if let Some(feed) = feed {
                feed.update(run, |row| row.apply(&record));
            }
        });
        self.presence.set_written(self.log.written());
    }

    /// Records that the first attempt has started. Written with its first events.
    pub(crate) fn started(&mut self, provider: &str) {
        self.started = true;
        provider.clone_into(&mut self.provider);
        let record = LogRecord::Started(RunStarted { at: Time::now(), provider: provider.to_owned() });
        self.log.push(&record);
        self.update_row(&record);
    }

    /// Records a batch of events. They are in the log when this returns, unless the disk is full.
    pub(crate) fn events(&mut self, events: &[Event], by: &CurrentAttempt) {
        self.add_events(events, by);
        self.write();
    }

    /// Adds events that are written with the end of the run.
    pub(crate) fn add_events(&mut self, events: &[Event], by: &CurrentAttempt) {
        for event in events {
            self.logged_end |= event.is_end();
            self.attempts += u32::from(matches!(event, Event::Attempted(_)));
        }
        self.log.push_events(events, by);
    }

    fn write(&mut self) {
        // A failure is logged, and marks the log as incomplete.
        let _ = self.log.write(Purpose::Continue, |_| {});
        self.presence.set_written(self.log.written());
    }

    fn update_row(&self, record: &LogRecord) {
        if let Some(feed) = &self.feed {
            feed.update(&self.presence.id, |row| row.apply(record));
        }
    }

    fn end(
        &mut self,
        provider: &str,
        session: Option<&SessionId>,
        result: Result<&Answer, &Failure>,
        write: Option<&SessionWrite>,
    ) -> (io::Result<()>, Option<trunkline_store::InFlight>) {
        self.ended = true;
        let last = || match result {
            Ok(answer) => Event::Finished(answer.clone()),
            Err(failure) => Event::Failed(failure.clone()),
        };
        // A run that never began has no events.
        if !self.logged_end && !self.log.is_empty() {
            self.log.push_events([&last()], &CurrentAttempt::default());
        }
        let (outcome, message, usage) = match result {
            Ok(answer) => (RunOutcome::Ok, None, answer.usage),
            Err(failure) => (RunOutcome::Failed(failure.category), Some(&failure.message), Usage::default()),
        };
        let took = self.began.elapsed();
        // A turn that ended before any attempt is counted for its first candidate.
        self.tally.ended(if provider.is_empty() { &self.provider } else { provider }, outcome.name(), took);
        let state = write.and_then(SessionWrite::state);
        if let Some(state) = state {
            self.log.push(&LogRecord::Session(state.clone().into()));
        }
        let cancelled = outcome == RunOutcome::Failed(Category::Cancelled);
        let record = LogRecord::Ended(Box::new(RunEnded {
            at: Time::now(),
            provider: provider.to_owned(),
            outcome,
            message: message.map(|message| self.secrets.mask(head(message, MAX_MESSAGE_BYTES))),
            interrupted: false,
            usage,
            duration: took,
            session: session.map(|session| SessionKey((*session.0).to_owned())),
            attempts: self.attempts,
            log: (!self.log.is_empty()).then(|| self.log.state()),
            key_released: self.keyed && (cancelled || !self.started),
        }));
        self.log.push(&record);
        let mut queued = None;
        let (feed, run) = (&self.feed, &self.presence.id);
        let written = self.log.write(Purpose::Continue, |_| {
            let Some(feed) = feed else { return };
            feed.update(run, |row| row.apply(&record));
            if matches!(&record, LogRecord::Ended(ended) if ended.key_released) {
                feed.release_key(run);
            }
            queued = state.zip(write).map(|(state, write)| feed.add_session(state.clone(), write.condition()));
        });
        let end = match &written {
            Ok(()) if !self.log.is_empty() => RunEnding::Logged,
            Ok(()) => RunEnding::Event(Arc::new(last())),
            Err(error) => {
                // The log cannot repeat the answer, so later queries report the run as failed.
                let failure = not_recorded(error);
                let record = RunEnded { log: Some(LogState::Incomplete), ..RunEnded::failed(&failure, took) };
                self.update_row(&LogRecord::Ended(record.into()));
                RunEnding::Event(Arc::new(Event::Failed(failure)))
            }
        };
        self.presence.set_written(self.log.written());
        self.presence.set_end(end);
        (written, queued)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.ended {
            // A failure is in the log of the gateway.
            let _ = self.end("", None, Err(&cancelled_by_client()), None);
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
