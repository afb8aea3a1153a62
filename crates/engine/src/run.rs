//! A turn on its way, through as many attempts as it takes.
//!
//! Whoever wants the events asks for the next one; nothing happens between two calls. An attempt that fails before the
//! caller has seen anything of it is followed by another, if the router says so; the caller sees a notice of that.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio_util::task::TaskTracker;
use trunkline_core::event::{Answer, Attempted, Event, Receipt, Resumption};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::phase::Phase;
use trunkline_core::turn::Shown;

use crate::StartError;
use crate::archive::{End, Recorder, given_up};
use crate::ladder::{Climbed, Ladder, Running};
use crate::router::Exposure;
use crate::session::Thread;

/// The longest text that a client is recognised by which keeps all that it was shown.
const MAX_STREAMED: usize = 1024 * 1024;

/// A turn on its way. Dropping it stops whatever runs for it, and nothing more is tried.
pub struct Run {
    id: String,
    provider: String,
    attempts: usize,
    events: VecDeque<Event>,
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
    /// How the turn came to its session.
    resumption: Option<Resumption>,
    /// None once the turn is over.
    recorder: Option<Recorder>,
    tracker: TaskTracker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    text: bool,
    anything: bool,
}

enum State {
    Running(Box<(Ladder, Running)>),
    /// Kept, because whoever asks for the next event may give up waiting and ask again.
    Climbing(Pin<Box<dyn Future<Output = Climbed> + Send>>),
    Done,
}

impl Run {
    /// Climbs until an attempt runs.
    pub(crate) async fn start(ladder: Ladder, recorder: Recorder) -> Result<Self, StartError> {
        let tracker = ladder.engine.tracker.clone();
        let (mut ladder, climbed) = ladder.climb().await;
        let running = match climbed {
            Ok(running) => running,
            Err(error) => {
                let provider = ladder.attempts.last().map(|last| last.provider.clone()).unwrap_or_default();
                let (thread, failure) = (ladder.thread.take(), error.as_failure());
                conclude(&tracker, thread, recorder, &provider, Err(&failure), "");
                return Err(error);
            }
        };
        let mut run = Self {
            id: ladder.run.clone(),
            provider: String::new(),
            attempts: 0,
            events: VecDeque::new(),
            state: State::Done,
            seen: Seen::default(),
            receipt: None,
            gap: false,
            streamed: Some(String::new()),
            named: false,
            resumption: None,
            recorder: Some(recorder),
            tracker,
        };
        run.stand_on(ladder, running);
        Ok(run)
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The provider of the present attempt.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// What it is doing, and for how long by now. Between two attempts it starts.
    pub fn phase(&self) -> (Phase, Duration) {
        match &self.state {
            State::Running(running) => {
                let (phase, elapsed) = running.1.attempt.phase();
                (phase.clone(), elapsed)
            }
            State::Climbing(_) => (Phase::Starting, Duration::ZERO),
            State::Done => (Phase::Ended, Duration::ZERO),
        }
    }

    /// How many attempts there were, with the present one.
    pub fn attempts(&self) -> usize {
        self.attempts
    }

    /// How the turn came to its session, if it has one.
    pub fn resumption(&self) -> Option<&Resumption> {
        self.resumption.as_ref()
    }

    /// The next event; the last is `Finished` or `Failed`, then `None`. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        let event = self.following().await?;
        if let Some(recorder) = &mut self.recorder {
            recorder.hear(&event);
        }
        Some(event)
    }

    async fn following(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match &mut self.state {
                State::Running(running) => {
                    let silent = || Event::Failed(Failure::new(Category::Unknown, "the run ended without an answer"));
                    let event = running.1.attempt.next().await.unwrap_or_else(silent);
                    self.take(event);
                }
                State::Climbing(climb) => {
                    let (mut ladder, climbed) = climb.await;
                    match climbed {
                        Ok(running) => self.stand_on(ladder, running),
                        Err(error) => {
                            self.state = State::Done;
                            // Of an attempt that was the last one after all.
                            self.events.extend(self.receipt.take().map(Event::Workspace));
                            self.events.extend(ladder.events.drain(..));
                            let failure = error.as_failure();
                            self.end(ladder.thread.take(), Err(&failure));
                            self.events.push_back(Event::Failed(failure));
                        }
                    }
                }
                State::Done => return None,
            }
        }
    }

    fn stand_on(&mut self, mut ladder: Ladder, running: Running) {
        self.events.extend(ladder.events.drain(..));
        running.model.backend.name().clone_into(&mut self.provider);
        self.attempts = ladder.started();
        (self.seen, self.named) = (Seen::default(), false);
        self.resumption = ladder.thread.as_ref().map(Thread::resumption);
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
                    self.resumption = Some(thread.resumption());
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
        let exposure = match (self.seen.anything, running.model.worktree) {
            (false, _) => Exposure::Nothing,
            (true, true) => Exposure::Apart,
            (true, false) => Exposure::Exposed,
        };
        ladder.over(&running.model, running.began, Some(&failure), self.receipt.clone());
        if exposure == Exposure::Nothing && ladder.may_begin_anew(&failure) {
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
                self.end(ladder.thread.take(), Err(&failure));
                self.events.push_back(Event::Failed(failure));
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
        let resumption = ladder.thread.as_ref().filter(|thread| thread.is_named()).map(Thread::resumption);
        if resumption.is_some() && !self.named {
            // A provider that was asked to go on need not say with what.
            let session = resumption.as_ref().map(|resumption| resumption.id.clone());
            self.events.push_back(Event::Started { session, model: None });
        }
        self.resumption = resumption;
        ladder.over(&running.model, running.began, None, None);
        self.events.extend(self.receipt.take().map(Event::Workspace));
        self.events.extend(ladder.events.drain(..));
        self.end(ladder.thread.take(), Ok(&answer));
        self.events.push_back(Event::Finished(answer));
    }

    /// Notes how the turn ended. Who waits for its last event does not wait for that.
    fn end(&mut self, thread: Option<Thread>, result: Result<&Answer, &Failure>) {
        let Some(mut recorder) = self.recorder.take() else { return };
        self.events.iter().for_each(|event| recorder.hear(event));
        conclude(&self.tracker, thread, recorder, &self.provider, result, self.streamed.as_deref().unwrap_or_default());
    }
}

impl Drop for Run {
    /// The caller has heard enough.
    fn drop(&mut self) {
        let State::Running(running) = &mut self.state else { return };
        let thread = running.0.thread.take();
        self.end(thread, Err(&given_up()));
    }
}

/// The session first: the record of the turn belongs to it.
fn conclude(
    tracker: &TaskTracker,
    thread: Option<Thread>,
    recorder: Recorder,
    provider: &str,
    result: Result<&Answer, &Failure>,
    streamed: &str,
) {
    let session = thread.as_ref().filter(|thread| thread.is_named()).map(|thread| thread.id().clone());
    let recorded = recorder.end(End { provider, session: session.as_ref(), result });
    match (thread, result) {
        (Some(thread), Ok(answer)) => {
            let noted = thread.succeeded(answer, streamed);
            tracker.spawn(async move {
                let _others_wait = noted.await;
                recorded.await;
            });
        }
        (Some(thread), Err(_)) => {
            let noted = thread.failed();
            tracker.spawn(async move {
                let _others_wait = noted.await;
                recorded.await;
            });
        }
        (None, _) => {
            tracker.spawn(recorded);
        }
    }
}
