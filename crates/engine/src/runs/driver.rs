//! Driver of a run: yields its events, from one attempt to the next.
//!
//! The driver is pulled: it makes progress only while its caller waits for the next event. An attempt that fails before
//! the caller has seen any of its output is followed by another one if the router decides so. The caller gets a notice
//! of that.
//!
//! ```text
//! Starting ──attempt runs──▶ Running ──last event──▶ Done
//!     ▲                         │ retry or fallback
//!     └─────────────────────────┘
//! ```

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use trunkline_core::event::{Answer, Attempted, Event, Receipt, SessionId};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::phase::Phase;
use trunkline_core::turn::AnswerTiming;
use trunkline_store::CurrentAttempt;

use crate::router::{Exposure, ignored_members, server_notes};
use crate::runs::attempts::{AttemptLoop, AttemptStart, RunningAttempt};
use crate::runs::live::ActiveRun;
use crate::runs::parked::ParkedAttempt;
use crate::runs::structured::AnswerCheck;
use crate::sandbox;
use crate::session::SessionThread;
use crate::shared::Shared;
use crate::start_error::{StartError, cancelled};
use crate::store_writer::{Recorder, RunEnd, cancelled_by_client, not_recorded};

/// Maximum size of the streamed text that is kept to recognise the client's next request by its history.
const MAX_STREAMED_BYTES: usize = 1024 * 1024;

/// Drives a run through its attempts. Dropping it stops the running attempt, and no further attempt is made.
pub(crate) struct RunDriver {
    id: String,
    current: CurrentAttempt,
    /// Events that have not been returned yet.
    events: VecDeque<Event>,
    /// Number of `events` that are in the log.
    logged: usize,
    state: DriverState,
    /// Output of the current attempt that the caller has seen.
    seen: SeenOutput,
    /// Worktree receipt of the current attempt.
    receipt: Option<Receipt>,
    /// Whether the next text is separated from the text of an earlier attempt by a blank line.
    gap: bool,
    /// All text so far, as a streaming caller sees it. `None` once it exceeds [`MAX_STREAMED_BYTES`].
    streamed: Option<String>,
    /// Whether the current attempt has reported the session id to the caller.
    named: bool,
    /// `None` once the run has ended.
    recorder: Option<Recorder>,
    live: Arc<ActiveRun>,
    /// Whether an answer may be given only if it is recorded.
    must_record: bool,
    /// Whether the record of the end survives what the settings promise.
    synced: bool,
    shared: Arc<Shared>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct SeenOutput {
    text: bool,
    anything: bool,
}

enum DriverState {
    Running(Box<(AttemptLoop, RunningAttempt)>),
    /// Stored here because the caller may drop its `next` future and call `next` again.
    Starting(Pin<Box<dyn Future<Output = AttemptStart> + Send>>),
    Done,
}

impl RunDriver {
    /// Tries candidates until an attempt runs.
    pub(crate) async fn start(attempt_loop: AttemptLoop, mut recorder: Recorder) -> Result<Self, StartError> {
        let shared = Arc::clone(&attempt_loop.shared);
        let (mut attempt_loop, started) = attempt_loop.start_next().await;
        let running = match started {
            Ok(running) => running,
            Err(error) => {
                let provider = attempt_loop.attempts.last().map(|last| last.provider.clone()).unwrap_or_default();
                let (thread, failure) = (attempt_loop.thread.take(), error.as_failure());
                // A failure is logged. The run is over in any case.
                let _ = conclude(&shared, SessionEnd::of(thread), recorder, &provider, Err(&failure), "");
                return Err(error);
            }
        };
        recorder.started(running.model.backend.name());
        Ok(Self::new(attempt_loop, running, recorder))
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn live(&self) -> Arc<ActiveRun> {
        Arc::clone(&self.live)
    }

    pub(crate) fn current(&self) -> &CurrentAttempt {
        &self.current
    }

    /// Returns the phase and the time since it began. Between two attempts the phase is `Starting`.
    pub(crate) fn phase(&self) -> (Phase, Duration) {
        match &self.state {
            DriverState::Running(running) => {
                let (phase, elapsed) = running.1.attempt.phase();
                (phase.clone(), elapsed)
            }
            DriverState::Starting(_) => (Phase::Starting, Duration::ZERO),
            DriverState::Done => (Phase::Ended, Duration::ZERO),
        }
    }

    /// Returns the next event, which is in the log by then. The last one is `Finished` or `Failed`, then `None`. Cancel
    /// safe.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.advance().await;
        if self.logged == 0
            && let Some(recorder) = &mut self.recorder
        {
            // All events that arrived together are one write.
            recorder.events(self.events.make_contiguous(), &self.current);
            self.logged = self.events.len();
        }
        if self.recorder.is_none() && !self.synced {
            match self.shared.store_writer.sync().await {
                Ok(()) => self.live.end_is_durable(),
                Err(error) => {
                    self.live.end_failed(Event::Failed(not_recorded(&error)));
                    self.not_recorded(&error);
                }
            }
            self.synced = true;
        }
        self.logged = self.logged.saturating_sub(1);
        self.events.pop_front()
    }

    /// Returns when there is an event to return, or when none will follow.
    async fn advance(&mut self) {
        while self.events.is_empty() {
            match &mut self.state {
                DriverState::Running(running) => {
                    let silent = || Event::Failed(Failure::new(Category::Unknown, "the run ended without an answer"));
                    let event = tokio::select! {
                        biased;
                        () = self.live.stopped() => None,
                        event = running.1.attempt.next() => Some(event.unwrap_or_else(silent)),
                    };
                    match event {
                        Some(event) => self.take_all(event),
                        None => self.cancel(),
                    }
                }
                DriverState::Starting(starting) => {
                    let started = tokio::select! {
                        biased;
                        () = self.live.stopped() => None,
                        started = starting => Some(started),
                    };
                    match started {
                        Some((attempt_loop, Ok(running))) => self.attempt_started(attempt_loop, running),
                        Some((mut attempt_loop, Err(error))) => {
                            self.state = DriverState::Done;
                            // The attempt that failed before was the last one after all.
                            self.events.extend(self.receipt.take().map(Event::Workspace));
                            self.events.extend(attempt_loop.events.drain(..));
                            self.end(attempt_loop.thread.take(), Event::Failed(error.as_failure()));
                        }
                        None => self.cancel(),
                    }
                }
                DriverState::Done => return,
            }
        }
    }

    /// Takes an event, and all events that are available without waiting.
    fn take_all(&mut self, event: Event) {
        self.take(event);
        while let DriverState::Running(running) = &mut self.state {
            match running.1.attempt.ready() {
                Some(event) => self.take(event),
                None => return,
            }
        }
    }

    /// Ends the run because it was cancelled.
    fn cancel(&mut self) {
        let thread = match std::mem::replace(&mut self.state, DriverState::Done) {
            DriverState::Running(mut running) => running.0.thread.take(),
            DriverState::Starting(_) | DriverState::Done => None,
        };
        self.end(thread, Event::Failed(cancelled()));
    }

    fn attempt_started(&mut self, mut attempt_loop: AttemptLoop, running: RunningAttempt) {
        self.events.extend(attempt_loop.events.drain(..));
        running.model.backend.name().clone_into(&mut self.current.provider);
        self.current.attempts = attempt_loop.started();
        (self.seen, self.named) = (SeenOutput::default(), false);
        self.current.session = attempt_loop.thread.as_ref().map(SessionThread::resumption);
        self.state = DriverState::Running(Box::new((attempt_loop, running)));
    }

    fn take(&mut self, event: Event) {
        let DriverState::Running(running) = &mut self.state else { return };
        let (attempt_loop, running) = &mut **running;
        let streaming = attempt_loop.turn.shown == AnswerTiming::AsItComes;
        match event {
            // Text is shown once the answer was checked.
            Event::Text { .. } if attempt_loop.holds_text(&running.model) => running.pass.promising(),
            Event::Text { delta } => {
                running.pass.promising();
                self.seen.anything |= streaming;
                self.seen.text |= streaming;
                self.show_text(delta);
            }
            Event::Thinking { .. } | Event::ToolCall { .. } => {
                self.seen.anything |= streaming;
                self.events.push_back(event);
            }
            Event::ToolStarted { .. } => {
                running.pass.promising();
                self.seen.anything = true;
                self.events.push_back(event);
            }
            Event::Workspace(receipt) => self.receipt = Some(receipt),
            Event::Finished(answer) => {
                running.pass.succeeded();
                let held = attempt_loop.holds_text(&running.model);
                match attempt_loop.check_answer(&running.model, answer, self.receipt.as_ref()) {
                    AnswerCheck::Accepted(answer) => {
                        if held && !answer.content.is_empty() {
                            self.show_text(answer.content.clone());
                        }
                        self.finished(answer);
                    }
                    AnswerCheck::Repair(failure) => self.repair(failure),
                    AnswerCheck::Rejected(failure) => {
                        self.receipt = attempt_loop.receipt(self.receipt.take());
                        self.failed(failure);
                    }
                }
            }
            Event::Failed(failure) => self.failed(failure),
            Event::Started { session: Some(native), model } => {
                let thread = attempt_loop.thread.as_mut().filter(|_| running.model.backend.resumes());
                let session = thread.map(|thread| {
                    thread.set_native(native);
                    self.current.session = Some(thread.resumption());
                    thread.id().clone()
                });
                self.named |= session.is_some();
                self.events.push_back(Event::Started { session, model });
            }
            Event::Started { session: None, .. }
            | Event::ToolFinished { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Attempted(_) => self.events.push_back(event),
        }
    }

    fn show_text(&mut self, delta: String) {
        let gap = std::mem::take(&mut self.gap);
        let delta = if gap { format!("\n\n{delta}") } else { delta };
        match &mut self.streamed {
            Some(streamed) if streamed.len() + delta.len() <= MAX_STREAMED_BYTES => streamed.push_str(&delta),
            Some(_) | None => self.streamed = None,
        }
        self.events.push_back(Event::Text { delta });
    }

    /// Starts the attempt that repairs an answer of the wrong form.
    fn repair(&mut self, failure: Failure) {
        let DriverState::Running(running) = std::mem::replace(&mut self.state, DriverState::Done) else { return };
        let (mut attempt_loop, mut running) = *running;
        attempt_loop.record_attempt(&running.model, running.began, Some(&failure), self.receipt.take());
        attempt_loop.repair_after(failure);
        self.events.extend(attempt_loop.events.drain(..));
        attempt_loop.predecessor = running.attempt.gone();
        drop(running);
        self.state = DriverState::Starting(Box::pin(attempt_loop.start_next()));
    }

    /// Starts another attempt, or ends the run.
    fn failed(&mut self, failure: Failure) {
        let DriverState::Running(running) = std::mem::replace(&mut self.state, DriverState::Done) else { return };
        let (mut attempt_loop, mut running) = *running;
        let hidden = running.model.backend.program().is_some_and(|cli| cli.hides_its_work(attempt_loop.turn.form));
        let exposure = match (self.seen.anything || hidden, running.model.worktree) {
            (false, _) => Exposure::Nothing,
            (true, true) => Exposure::Apart,
            (true, false) => Exposure::Exposed,
        };
        attempt_loop.record_attempt(&running.model, running.began, Some(&failure), self.receipt.clone());
        // A CLI that does not report its work may have done some once it has reported its session id.
        let may_have_worked = self.seen.anything || (hidden && self.named);
        if !may_have_worked && attempt_loop.is_session_lost(&failure) {
            self.events.extend(attempt_loop.events.drain(..));
            attempt_loop.predecessor = running.attempt.gone();
            let own_retries = running.attempt.own_retries();
            let RunningAttempt { pass, attempt, .. } = running;
            drop(attempt);
            self.state =
                DriverState::Starting(Box::pin(attempt_loop.start_without_session(failure, own_retries, pass)));
            return;
        }
        match attempt_loop.decide(failure, exposure, running.attempt.own_retries(), &mut running.pass) {
            Some(failure) => {
                // This was the last attempt, so its workspace is reported as that of the run.
                self.events.extend(self.receipt.take().map(Event::Workspace));
                for event in attempt_loop.events.drain(..) {
                    self.events.push_back(if let Event::Attempted(attempted) = event {
                        Event::Attempted(Attempted { workspace: None, ..*attempted }.into())
                    } else {
                        event
                    });
                }
                self.end(attempt_loop.thread.take(), Event::Failed(failure));
            }
            None => {
                self.gap |= self.seen.text;
                self.receipt = None;
                self.events.extend(attempt_loop.events.drain(..));
                attempt_loop.predecessor = running.attempt.gone();
                drop(running);
                self.state = DriverState::Starting(Box::pin(attempt_loop.start_next()));
            }
        }
    }

    fn finished(&mut self, mut answer: Answer) {
        let DriverState::Running(running) = std::mem::replace(&mut self.state, DriverState::Done) else { return };
        let (mut attempt_loop, running) = *running;
        answer.notes.append(&mut attempt_loop.notes);
        answer.ignored = ignored_members(&attempt_loop.turn, &running.model);
        if !attempt_loop.turn.servers.is_empty() {
            let usual = self.shared.settings.sandbox;
            let told = running.model.backend.program().map(|provider| sandbox::told(&running.model, usual, provider));
            answer.notes.extend(server_notes(&attempt_loop.turn, &running.model, told.unwrap_or_default()));
        }
        let resumption =
            attempt_loop.thread.as_ref().filter(|thread| thread.is_resumable()).map(SessionThread::resumption);
        if resumption.is_some() && !self.named {
            // A provider that resumes a session need not report the session id again.
            let session = resumption.as_ref().map(|resumption| resumption.id.clone());
            self.events.push_back(Event::Started { session, model: None });
        }
        self.current.session = resumption;
        attempt_loop.record_attempt(&running.model, running.began, None, None);
        self.events.extend(attempt_loop.receipt(self.receipt.take()).map(Event::Workspace));
        self.events.extend(attempt_loop.events.drain(..));
        if running.attempt.is_parked() {
            return self.park(attempt_loop, running, answer);
        }
        self.end(attempt_loop.thread.take(), Event::Finished(answer));
    }

    /// Ends the run with calls of the client's tools. Its process waits for the run that brings the results.
    fn park(&mut self, mut attempt_loop: AttemptLoop, running: RunningAttempt, answer: Answer) {
        let RunningAttempt { attempt, pass, model, began } = running;
        let (run, thread) = (self.id.clone(), attempt_loop.thread.take());
        let parked = ParkedAttempt { attempt, pass, model, began, thread, run };
        let session = parked.session();
        // First, because the client may answer as soon as it has the calls.
        let last = match parked.park(&self.shared, &attempt_loop.turn.owner, &answer.calls) {
            Ok(()) => Event::Finished(answer),
            Err(failure) => Event::Failed(failure),
        };
        self.end_in(SessionEnd::Open(session), last);
    }

    /// Drives an attempt that another run has begun.
    pub(crate) fn continuing(attempt_loop: AttemptLoop, running: RunningAttempt, mut recorder: Recorder) -> Self {
        recorder.started(running.model.backend.name());
        let mut run = Self::new(attempt_loop, running, recorder);
        // The client's tools have run: nothing is tried again without its knowledge.
        run.seen = SeenOutput { text: false, anything: true };
        run
    }

    fn new(attempt_loop: AttemptLoop, running: RunningAttempt, recorder: Recorder) -> Self {
        let (shared, live) = (Arc::clone(&attempt_loop.shared), recorder.live());
        let mut run = Self {
            id: attempt_loop.run.clone(),
            current: CurrentAttempt::default(),
            events: VecDeque::new(),
            logged: 0,
            state: DriverState::Done,
            seen: SeenOutput::default(),
            receipt: None,
            gap: false,
            streamed: Some(String::new()),
            named: false,
            recorder: Some(recorder),
            live,
            must_record: shared.store_writer.must_record(attempt_loop.turn.surface),
            synced: false,
            shared,
        };
        run.attempt_started(attempt_loop, running);
        run.live.set_begun(&run.current);
        run
    }

    /// Records the end of the run: the outcome and the session are in the log before the caller gets the last event.
    fn end(&mut self, thread: Option<SessionThread>, last: Event) {
        self.end_in(SessionEnd::of(thread), last);
    }

    fn end_in(&mut self, session: SessionEnd, last: Event) {
        self.events.push_back(last);
        let Some(mut recorder) = self.recorder.take() else { return };
        let events = self.events.make_contiguous();
        recorder.add_events(&events[self.logged..], &self.current);
        self.logged = events.len();
        let result = match events.last() {
            Some(Event::Finished(answer)) => Ok(answer),
            Some(Event::Failed(failure)) => Err(failure),
            Some(_) | None => return,
        };
        let streamed = self.streamed.as_deref().unwrap_or_default();
        // Until `next` has waited for the disk.
        self.live.await_durability();
        let recorded = conclude(&self.shared, session, recorder, &self.current.provider, result, streamed);
        if let Err(error) = recorded {
            self.not_recorded(&error);
        }
    }

    /// Replaces the answer of a run whose end could not be recorded: a client that may come back for it must not get it.
    fn not_recorded(&mut self, error: &io::Error) {
        if self.must_record
            && let Some(last @ Event::Finished(_)) = self.events.back_mut()
        {
            *last = Event::Failed(not_recorded(error));
        }
    }
}

impl Drop for RunDriver {
    /// The client has disconnected.
    fn drop(&mut self) {
        if let DriverState::Running(running) = &mut self.state {
            let thread = running.0.thread.take();
            self.end(thread, Event::Failed(cancelled_by_client()));
        }
        // Nothing waits for the disk any more.
        if self.recorder.is_none() && !self.synced {
            self.live.end_is_durable();
        }
    }
}

/// The session at the end of a run.
enum SessionEnd {
    /// Its turn has ended.
    Turn(Box<SessionThread>),
    /// There is no session, or its turn continues in another run.
    Open(Option<SessionId>),
}

impl SessionEnd {
    fn of(thread: Option<SessionThread>) -> Self {
        thread.map_or(Self::Open(None), |thread| Self::Turn(Box::new(thread)))
    }
}

/// Ends the turn of the session, and the record of the run.
fn conclude(
    shared: &Shared,
    session: SessionEnd,
    recorder: Recorder,
    provider: &str,
    result: Result<&Answer, &Failure>,
    streamed: &str,
) -> io::Result<()> {
    let (session, thread) = match session {
        SessionEnd::Open(session) => (session, None),
        SessionEnd::Turn(thread) => {
            (Some(&thread).filter(|thread| thread.is_resumable()).map(|thread| thread.id().clone()), Some(*thread))
        }
    };
    let write = thread.map(|thread| match result {
        Ok(answer) => thread.succeeded(answer, streamed),
        Err(_) => thread.failed(),
    });
    shared.store_writer.end(recorder, RunEnd { provider, session: session.as_ref(), result, write })
}
