//! A turn on its way, through as many attempts as it takes.
//!
//! Whoever wants the events asks for the next one; nothing happens between two calls. An attempt that fails before the
//! caller has seen anything of it is followed by another, if the router says so; the caller sees a notice of that.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use trunkline_core::event::{Attempted, Event, Receipt};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::turn::Shown;

use crate::StartError;
use crate::ladder::{Climbed, Ladder, Running};
use crate::router::{Exposure, circuit_of};

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
    pub(crate) async fn start(ladder: Ladder) -> Result<Self, StartError> {
        let (ladder, climbed) = ladder.climb().await;
        let running = climbed?;
        let mut run = Self {
            id: ladder.run.clone(),
            provider: String::new(),
            attempts: 0,
            events: VecDeque::new(),
            state: State::Done,
            seen: Seen::default(),
            receipt: None,
            gap: false,
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

    /// How many attempts there were, with the present one.
    pub fn attempts(&self) -> usize {
        self.attempts
    }

    /// The next event; the last is `Finished` or `Failed`, then `None`. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
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
                            self.events.extend(ladder.events.drain(..));
                            self.events.push_back(Event::Failed(error.into_failure()));
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
        self.seen = Seen::default();
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
                self.events.push_back(Event::Text { delta: if apart { format!("\n\n{delta}") } else { delta } });
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
            Event::Finished(_) => {
                running.pass.succeeded();
                self.finished(event);
            }
            Event::Failed(failure) => self.failed(failure),
            Event::Started { session: Some(ref session), .. } => {
                ladder.engine.sessions.belongs_to(session, &circuit_of(&running.model));
                self.events.push_back(event);
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

    fn finished(&mut self, last: Event) {
        let State::Running(running) = std::mem::replace(&mut self.state, State::Done) else { return };
        let (mut ladder, running) = *running;
        ladder.over(&running.model, running.began, None, None);
        self.events.extend(self.receipt.take().map(Event::Workspace));
        self.events.extend(ladder.events.drain(..));
        self.events.push_back(last);
    }
}
