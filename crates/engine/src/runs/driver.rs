//! A turn on its way, through as many attempts as it takes.
//!
//! Whoever wants the events asks for the next one; nothing happens between two calls. An attempt that fails before the
//! caller has seen anything of it is followed by another, if the router says so; the caller sees a notice of that.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use trunkline_core::event::{Answer, Attempted, Event, Receipt};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::phase::Phase;
use trunkline_core::turn::Shown;

use crate::router::Exposure;
use crate::runs::attempts::{AttemptLoop, AttemptStart, Running};
use crate::runs::entry::By;
use crate::runs::live::ActiveRun;
use crate::session::SessionThread;
use crate::shared::Shared;
use crate::start_error::{StartError, cancelled};
use crate::store_writer::{Recorder, RunEnd, cancelled_by_client};

/// The longest text that a client is recognised by which keeps all that it was shown.
const MAX_STREAMED: usize = 1024 * 1024;

/// A run's course through its attempts. Dropping it stops whatever runs for it, and nothing more is tried.
pub(crate) struct RunDriver {
    id: String,
    by: By,
    events: VecDeque<Event>,
    /// How many of them are written down.
    noted: usize,
    state: State,
    /// What the caller has of the present attempt.
    seen: Seen,
    /// What the present attempt left in its worktree.
    receipt: Option<Receipt>,
    /// The next text stands apart from what an earlier attempt said.
    gap: bool,
    /// All the text there was, as a caller sees it who is shown it as it comes; none when it is too much to remember.
    streamed: Option<String>,
    /// The caller was told the session's name in the present attempt.
    named: bool,
    /// None once the turn is over.
    recorder: Option<Recorder>,
    live: Arc<ActiveRun>,
    shared: Arc<Shared>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    text: bool,
    anything: bool,
}

enum State {
    Running(Box<(AttemptLoop, Running)>),
    /// Kept, because whoever asks for the next event may give up waiting and ask again.
    Climbing(Pin<Box<dyn Future<Output = AttemptStart> + Send>>),
    Done,
}

impl RunDriver {
    /// Climbs until an attempt runs.
    pub(crate) async fn start(ladder: AttemptLoop, mut recorder: Recorder) -> Result<Self, StartError> {
        let shared = Arc::clone(&ladder.shared);
        let (mut ladder, climbed) = ladder.climb().await;
        let running = match climbed {
            Ok(running) => running,
            Err(error) => {
                let provider = ladder.attempts.last().map(|last| last.provider.clone()).unwrap_or_default();
                let (thread, failure) = (ladder.thread.take(), error.as_failure());
                conclude(&shared, thread, recorder, &provider, Err(&failure), "");
                return Err(error);
            }
        };
        recorder.started(running.model.backend.name());
        let live = recorder.live();
        let mut run = Self {
            id: ladder.run.clone(),
            by: By::default(),
            events: VecDeque::new(),
            noted: 0,
            state: State::Done,
            seen: Seen::default(),
            receipt: None,
            gap: false,
            streamed: Some(String::new()),
            named: false,
            recorder: Some(recorder),
            live,
            shared,
        };
        run.stand_on(ladder, running);
        run.live.begun(&run.by);
        Ok(run)
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn live(&self) -> Arc<ActiveRun> {
        Arc::clone(&self.live)
    }

    /// Who is at work.
    pub(crate) fn by(&self) -> &By {
        &self.by
    }

    /// What it is doing, and for how long by now. Between two attempts it starts.
    pub(crate) fn phase(&self) -> (Phase, Duration) {
        match &self.state {
            State::Running(running) => {
                let (phase, elapsed) = running.1.attempt.phase();
                (phase.clone(), elapsed)
            }
            State::Climbing(_) => (Phase::Starting, Duration::ZERO),
            State::Done => (Phase::Ended, Duration::ZERO),
        }
    }

    /// The next event; the last is `Finished` or `Failed`, then `None`. Written down before it is handed out. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.advance().await;
        if self.noted == 0
            && let Some(recorder) = &mut self.recorder
        {
            // All that came together, in one go.
            recorder.events(self.events.make_contiguous(), &self.by);
            self.noted = self.events.len();
        }
        self.noted = self.noted.saturating_sub(1);
        self.events.pop_front()
    }

    /// Returns when there is an event to hand out, or none will follow.
    async fn advance(&mut self) {
        while self.events.is_empty() {
            match &mut self.state {
                State::Running(running) => {
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
                State::Climbing(climb) => {
                    let climbed = tokio::select! {
                        biased;
                        () = self.live.stopped() => None,
                        climbed = climb => Some(climbed),
                    };
                    match climbed {
                        Some((ladder, Ok(running))) => self.stand_on(ladder, running),
                        Some((mut ladder, Err(error))) => {
                            self.state = State::Done;
                            // Of an attempt that was the last one after all.
                            self.events.extend(self.receipt.take().map(Event::Workspace));
                            self.events.extend(ladder.events.drain(..));
                            self.end(ladder.thread.take(), Event::Failed(error.as_failure()));
                        }
                        None => self.cancel(),
                    }
                }
                State::Done => return,
            }
        }
    }

    /// An event, and those that are there with it.
    fn take_all(&mut self, event: Event) {
        self.take(event);
        while let State::Running(running) = &mut self.state {
            match running.1.attempt.ready() {
                Some(event) => self.take(event),
                None => return,
            }
        }
    }

    /// Somebody has stopped the run.
    fn cancel(&mut self) {
        let thread = match std::mem::replace(&mut self.state, State::Done) {
            State::Running(mut running) => running.0.thread.take(),
            State::Climbing(_) | State::Done => None,
        };
        self.end(thread, Event::Failed(cancelled()));
    }

    fn stand_on(&mut self, mut ladder: AttemptLoop, running: Running) {
        self.events.extend(ladder.events.drain(..));
        running.model.backend.name().clone_into(&mut self.by.provider);
        self.by.attempts = ladder.started();
        (self.seen, self.named) = (Seen::default(), false);
        self.by.session = ladder.thread.as_ref().map(SessionThread::resumption);
        self.state = State::Running(Box::new((ladder, running)));
    }

    fn take(&mut self, event: Event) {
        let State::Running(running) = &mut self.state else { return };
        let (ladder, running) = &mut **running;
        let as_it_comes = ladder.turn.shown == Shown::AsItComes;
        match event {
            Event::Text { delta } => {
                running.pass.promising();
                self.seen.anything |= as_it_comes;
                self.seen.text |= as_it_comes;
                let apart = std::mem::take(&mut self.gap);
                let delta = if apart { format!("\n\n{delta}") } else { delta };
                match &mut self.streamed {
                    Some(streamed) if streamed.len() + delta.len() <= MAX_STREAMED => streamed.push_str(&delta),
                    Some(_) | None => self.streamed = None,
                }
                self.events.push_back(Event::Text { delta });
            }
            Event::Thinking { .. } | Event::ToolCall { .. } => {
                self.seen.anything |= as_it_comes;
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
                self.finished(answer);
            }
            Event::Failed(failure) => self.failed(failure),
            Event::Started { session: Some(native), model } => {
                let thread = ladder.thread.as_mut().filter(|_| running.model.backend.resumes());
                let session = thread.map(|thread| {
                    thread.hear(native);
                    self.by.session = Some(thread.resumption());
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

    /// Another attempt, or the end.
    fn failed(&mut self, failure: Failure) {
        let State::Running(running) = std::mem::replace(&mut self.state, State::Done) else { return };
        let (mut ladder, mut running) = *running;
        let hidden = running.model.backend.program().is_some_and(|cli| cli.hides_its_work(ladder.turn.form));
        let exposure = match (self.seen.anything || hidden, running.model.worktree) {
            (false, _) => Exposure::Nothing,
            (true, true) => Exposure::Apart,
            (true, false) => Exposure::Exposed,
        };
        ladder.over(&running.model, running.began, Some(&failure), self.receipt.clone());
        // A CLI that shows nothing of its work may have done some once it has named the session.
        let may_have_worked = self.seen.anything || (hidden && self.named);
        if !may_have_worked && ladder.may_begin_anew(&failure) {
            self.events.extend(ladder.events.drain(..));
            ladder.predecessor = running.attempt.gone();
            let own_retries = running.attempt.own_retries();
            let Running { pass, attempt, .. } = running;
            drop(attempt);
            self.state = State::Climbing(Box::pin(ladder.climb_anew(failure, own_retries, pass)));
            return;
        }
        match ladder.decide(failure, exposure, running.attempt.own_retries(), &mut running.pass) {
            Some(failure) => {
                // It was the last: its workspace is the run's.
                self.events.extend(self.receipt.take().map(Event::Workspace));
                for event in ladder.events.drain(..) {
                    self.events.push_back(if let Event::Attempted(attempted) = event {
                        Event::Attempted(Attempted { workspace: None, ..*attempted }.into())
                    } else {
                        event
                    });
                }
                self.end(ladder.thread.take(), Event::Failed(failure));
            }
            None => {
                self.gap |= self.seen.text;
                self.receipt = None;
                self.events.extend(ladder.events.drain(..));
                ladder.predecessor = running.attempt.gone();
                drop(running);
                self.state = State::Climbing(Box::pin(ladder.climb()));
            }
        }
    }

    fn finished(&mut self, answer: Answer) {
        let State::Running(running) = std::mem::replace(&mut self.state, State::Done) else { return };
        let (mut ladder, running) = *running;
        let resumption = ladder.thread.as_ref().filter(|thread| thread.is_named()).map(SessionThread::resumption);
        if resumption.is_some() && !self.named {
            // A provider that was asked to go on need not say with what.
            let session = resumption.as_ref().map(|resumption| resumption.id.clone());
            self.events.push_back(Event::Started { session, model: None });
        }
        self.by.session = resumption;
        ladder.over(&running.model, running.began, None, None);
        self.events.extend(self.receipt.take().map(Event::Workspace));
        self.events.extend(ladder.events.drain(..));
        self.end(ladder.thread.take(), Event::Finished(answer));
    }

    /// Notes how the turn ended. Who waits for its last event does not wait for that.
    fn end(&mut self, thread: Option<SessionThread>, last: Event) {
        self.events.push_back(last);
        let Some(mut recorder) = self.recorder.take() else { return };
        let events = self.events.make_contiguous();
        recorder.events(&events[self.noted..], &self.by);
        self.noted = events.len();
        let result = match events.last() {
            Some(Event::Finished(answer)) => Ok(answer),
            Some(Event::Failed(failure)) => Err(failure),
            Some(_) | None => return,
        };
        let streamed = self.streamed.as_deref().unwrap_or_default();
        conclude(&self.shared, thread, recorder, &self.by.provider, result, streamed);
    }
}

impl Drop for RunDriver {
    /// The caller has heard enough.
    fn drop(&mut self) {
        let State::Running(running) = &mut self.state else { return };
        let thread = running.0.thread.take();
        self.end(thread, Event::Failed(cancelled_by_client()));
    }
}

/// The session first: the record of the turn belongs to it.
fn conclude(
    shared: &Shared,
    thread: Option<SessionThread>,
    recorder: Recorder,
    provider: &str,
    result: Result<&Answer, &Failure>,
    streamed: &str,
) {
    let session = thread.as_ref().filter(|thread| thread.is_named()).map(|thread| thread.id().clone());
    let recorded = recorder.end(RunEnd { provider, session: session.as_ref(), result });
    let tracker = &shared.tasks.tracker;
    match (thread, result) {
        (Some(thread), Ok(answer)) => shared.store_writer.leave(tracker, thread.succeeded(answer, streamed), recorded),
        (Some(thread), Err(_)) => shared.store_writer.leave(tracker, thread.failed(), recorded),
        (None, _) => {
            tracker.spawn(recorded);
        }
    }
}
