//! The way up from candidate to candidate until one runs: waits, circuits, and what was tried so far. What is decided is
//! [`crate::router`]'s; this does it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use trunkline_core::event::{Attempted, Event, Receipt};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::Model;
use trunkline_core::turn::{Message, Turn};

use crate::admission::{Permit, Reserved};
use crate::attempt::begin::begin;
use crate::attempt::events::Attempt;
use crate::attempt::request::{AttemptRequest, BeginError};
use crate::router::models::Models;
use crate::router::{Candidate, Exposure, Failed, Next, Pass, Refused, Why, circuit_of, next};
use crate::sandbox;
use crate::session::resolve::Resolved;
use crate::session::{Place, SessionThread, end_of_past};
use crate::shared::Shared;
use crate::start_error::StartError;

/// The most of a failed attempt's words that are kept with it.
const MAX_MESSAGE: usize = 300;

/// The longest time that is named to a client who comes when everyone is left alone.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// A wait for a slot that is worth telling.
const LONG: Duration = Duration::from_secs(1);

/// What a machine that is out of processes gets to recover.
const BREATH: Duration = Duration::from_secs(5);

/// A turn and where it may be tried.
pub(crate) struct AttemptLoop {
    pub(crate) shared: Arc<Shared>,
    models: Arc<Models>,
    pub(crate) turn: Turn,
    pub(crate) run: String,
    candidates: Vec<Candidate>,
    /// The candidate whose turn it is.
    at: usize,
    /// How often it was tried again.
    retries: u32,
    /// To wait before the next try.
    wait: Option<Duration>,
    /// What is over.
    pub(crate) attempts: Vec<Attempted>,
    /// Why the last of them failed.
    last: Option<Failure>,
    /// The open circuit that may be tried again first.
    refused: Option<Refused>,
    /// What there is to tell about the way.
    pub(crate) events: Vec<Event>,
    /// The session is held from the first attempt to the last: nobody's turn comes between them.
    pub(crate) thread: Option<SessionThread>,
    /// Where the session had left off when the turn began: each attempt starts there.
    place: Option<Place>,
    /// What was taken for the first attempt before the run was promised.
    reserved: Option<Reserved>,
    /// The attempt before, while something of it may still run.
    pub(crate) predecessor: Option<oneshot::Receiver<()>>,
}

/// An attempt that runs.
pub(crate) struct Running {
    pub(crate) attempt: Attempt,
    pub(crate) pass: Pass,
    pub(crate) model: Arc<Model>,
    pub(crate) began: Instant,
}

/// The ladder comes back, whatever it led to.
pub(crate) type AttemptStart = (AttemptLoop, Result<Running, StartError>);

impl AttemptLoop {
    pub(crate) fn new(
        shared: Arc<Shared>,
        models: Arc<Models>,
        run: String,
        mut turn: Turn,
        resolved: Resolved,
        reserved: Option<Reserved>,
    ) -> Self {
        shared.routing.retries.earn();
        let notice = resolved.notice();
        let Resolved { candidates, thread } = resolved;
        // From here on it is the provider's own name.
        turn.session = thread.as_ref().and_then(|thread| thread.native().cloned());
        let mut ladder = Self {
            place: thread.as_ref().and_then(SessionThread::place),
            shared,
            models,
            turn,
            run,
            candidates,
            at: 0,
            retries: 0,
            wait: None,
            attempts: Vec::new(),
            last: None,
            refused: None,
            events: Vec::new(),
            thread,
            predecessor: None,
            reserved,
        };
        if let Some(notice) = notice {
            ladder.tell(notice);
        }
        ladder
    }

    /// Tries one candidate after the other until one runs. Dropping the future gives the turn up, wherever it is.
    pub(crate) async fn climb(mut self) -> AttemptStart {
        let climbed = self.up().await;
        (self, climbed)
    }

    async fn up(&mut self) -> Result<Running, StartError> {
        if let Some(gone) = self.predecessor.take() {
            let _it_is_gone_either_way = gone.await;
        }
        loop {
            if let Some(wait) = self.wait.take() {
                tokio::time::sleep(wait).await;
            }
            let Some(model) = self.candidates.get(self.at).map(|candidate| Arc::clone(&candidate.model)) else {
                return Err(self.nobody());
            };
            let circuit = circuit_of(&model);
            if let Err(refused) = self.shared.routing.circuits.check(&circuit) {
                self.skip(&model, refused);
                continue;
            }
            let permit = match self.shared.admission.enter(&self.turn.owner, &model.name, self.reserved.take()).await {
                Ok(permit) => permit,
                // Full is full, whoever is next; but why we came here says more.
                Err(busy) => return Err(self.last.take().map_or(busy, |failure| self.ended(failure))),
            };
            // Only who can start at once: a trial that waits for a slot would keep others from trying.
            let mut pass = match self.shared.routing.circuits.enter(&circuit, self.models.policy().breaker) {
                Ok(pass) => pass,
                Err(refused) => {
                    self.skip(&model, refused);
                    continue;
                }
            };
            if let Some((waited, ahead)) = permit.waited.filter(|(waited, _)| *waited >= LONG) {
                self.tell(format!("waited {:.0?} for a slot; {ahead} were ahead", waited));
            }
            let began = Instant::now();
            match self.begin(&model, permit).await {
                Ok(attempt) => {
                    if let Some(thread) = &mut self.thread {
                        thread.begun_by(&model);
                    }
                    return Ok(Running { attempt, pass, model, began });
                }
                Err(BeginError::Exhausted(message)) => {
                    let busy = StartError::Busy { message, retry_after: BREATH };
                    return Err(self.last.take().map_or(busy, |failure| self.ended(failure)));
                }
                Err(BeginError::Failed(failure)) => {
                    self.over(&model, began, Some(&failure), None);
                    if self.may_begin_anew(&failure) && self.begin_anew(&failure).await {
                        continue;
                    }
                    if let Some(failure) = self.decide(failure, Exposure::Nothing, 0, &mut pass) {
                        return Err(self.ended(failure));
                    }
                }
            }
        }
    }

    async fn begin(&self, model: &Arc<Model>, permit: Permit) -> Result<Attempt, BeginError> {
        let another = self.at + 1 < self.candidates.len();
        let attempt = AttemptRequest {
            turn: &self.turn,
            model,
            models: &self.models,
            id: &self.attempt_id(),
            run: &self.run,
            session: self.thread.as_ref().map(|thread| (thread.id().clone(), thread.lock())),
            place: self.place.clone(),
            again: !self.attempts.is_empty(),
            standby: another.then(|| Arc::clone(self.models.policy())),
        };
        begin(&self.shared, attempt, permit).await
    }

    fn ended(&self, failure: Failure) -> StartError {
        StartError::Failed { failure, run: self.run.clone(), attempts: self.attempts.clone() }
    }

    /// Notes that an attempt is over.
    pub(crate) fn over(
        &mut self,
        model: &Model,
        began: Instant,
        failure: Option<&Failure>,
        workspace: Option<Receipt>,
    ) {
        let secrets = &self.shared.settings.secrets;
        let attempted = Attempted {
            provider: model.backend.name().to_owned(),
            model: model.name.clone(),
            category: failure.map(|failure| failure.category),
            message: failure.map(|failure| brief(&secrets.mask(&failure.message))),
            duration: began.elapsed(),
            workspace,
            sandbox: sandbox::held(model, self.shared.settings.sandbox),
        };
        if let (Some(failure), Some(reason)) = (failure, &attempted.message) {
            let (run, model, provider) = (&self.run, &attempted.model, &attempted.provider);
            tracing::warn!(run, model, provider, category = failure.category.name(), "attempt failed: {reason}");
        }
        self.attempts.push(attempted.clone());
        self.events.push(Event::Attempted(attempted.into()));
    }

    /// What follows a failure: gives it back if nothing does. A provider's circuit counts turns it failed, not tries; a
    /// CLI that has tried again by itself has had these tries.
    pub(crate) fn decide(
        &mut self,
        failure: Failure,
        exposure: Exposure,
        own_retries: u32,
        pass: &mut Pass,
    ) -> Option<Failure> {
        let another = self.at + 1 < self.candidates.len();
        let retries = self.retries.max(own_retries);
        let failed = Failed { failure: &failure, retries, exposure, another };
        let policy = Arc::clone(self.models.policy());
        let mut decided = next(&policy, &failed, fastrand::f64());
        if matches!(decided, Next::Retry { .. }) && !self.shared.routing.retries.take() {
            self.tell("too much fails to try the same again".to_owned());
            decided = next(&policy, &Failed { retries: policy.max_retries, ..failed }, 0.0);
        }
        let name = self.candidates[self.at].model.name.clone();
        let category = failure.category.name();
        // A model that the client made up says nothing about the provider.
        let made_up = self.candidates[self.at].why == Why::AskedModel && failure.category == Category::Unknown;
        if !made_up && (!matches!(decided, Next::Retry { .. }) || pass.is_trial()) {
            pass.failed(&Failure {
                message: brief(&self.shared.settings.secrets.mask(&failure.message)),
                ..failure.clone()
            });
        }
        match decided {
            Next::Stop => {
                let unexposed = Failed { exposure: Exposure::Nothing, ..failed };
                let held_back = exposure == Exposure::Exposed && next(&policy, &unexposed, 0.0) != Next::Stop;
                if !held_back || failure.hint.is_some() {
                    return Some(failure);
                }
                let agent = crate::router::explain::kind(&self.candidates[self.at].model) == "agent";
                let remedy = if agent { "; with worktree: true it would be" } else { "" };
                let why = "it was not tried again: something had been shown, or a tool had run or may have";
                return Some(failure.hint(format!("{why}{remedy}")));
            }
            Next::Retry { after } => {
                self.tell(format!("{name} failed ({category}); trying again in {after:.1?}"));
                self.retries += 1;
                self.wait = Some(after);
            }
            Next::Fallback => {
                let other = self.candidates[self.at + 1].model.name.clone();
                self.tell(format!("{name} failed ({category}); trying {other}"));
                self.step();
            }
        }
        self.last = Some(failure);
        None
    }

    /// Whether the provider was asked to resume a session and says that it cannot. Every other failure, whatever its
    /// category, is the turn's own: to run the CLI again would do the same work twice.
    pub(crate) fn may_begin_anew(&self, failure: &Failure) -> bool {
        self.turn.session.is_some() && failure.session_lost
    }

    /// Tells a provider that has forgotten the session what was said in it, if that is known: by the request, else by the
    /// archive. The next attempt is that of somebody new.
    pub(crate) async fn begin_anew(&mut self, failure: &Failure) -> bool {
        let Some(thread) = &mut self.thread else { return false };
        let why = format!("the session could not be resumed: {}", brief(&failure.message));
        if end_of_past(&self.turn.messages).is_some() {
            thread.anew(why, Some(&self.turn.messages));
        } else {
            self.shared.sessions.settled(thread.id()).await;
            self.shared.store_writer.flush().await;
            let mut said: Vec<Message> = self.shared.sessions.book.said(thread.id()).await;
            if said.is_empty() {
                return false;
            }
            thread.anew(why, None);
            said.append(&mut self.turn.messages);
            self.turn.messages = said;
        }
        self.turn.session = None;
        self.tell("the session could not be resumed; beginning anew with what was said in it".to_owned());
        true
    }

    /// As [`climb`](Self::climb), after a failure to resume the session.
    pub(crate) async fn climb_anew(mut self, failure: Failure, own_retries: u32, mut pass: Pass) -> AttemptStart {
        if !self.begin_anew(&failure).await
            && let Some(failure) = self.decide(failure, Exposure::Nothing, own_retries, &mut pass)
        {
            let ended = self.ended(failure);
            return (self, Err(ended));
        }
        drop(pass);
        self.climb().await
    }

    /// How many attempts there were, with the one that runs.
    pub(crate) fn started(&self) -> usize {
        self.attempts.len() + 1
    }

    /// The first is called as its run, for it is mostly the only one.
    fn attempt_id(&self) -> String {
        match self.attempts.len() {
            0 => self.run.clone(),
            before => format!("{}-{}", self.run, before + 1),
        }
    }

    fn step(&mut self) {
        self.at += 1;
        self.retries = 0;
    }

    /// Moves on from a provider whose circuit is open, if the failures that opened it allow another provider. One that this
    /// turn has asked before is moved on from as its own failure allows.
    fn skip(&mut self, model: &Model, refused: Refused) {
        let policy = self.models.policy();
        let may_move = match &self.last {
            Some(failure) if self.retries > 0 => policy.falls_back(failure.category),
            Some(_) | None => refused.because.falls_back(policy),
        };
        self.tell(format!(
            "{}: circuit open: skipped for {:.0?} after repeated failures ({})",
            model.name,
            refused.wait,
            refused.because.last.category.name()
        ));
        if self.refused.as_ref().is_none_or(|soonest| refused.wait < soonest.wait) {
            self.refused = Some(refused);
        }
        if may_move {
            self.step();
        } else {
            self.at = self.candidates.len();
        }
    }

    /// There is no candidate left to ask.
    fn nobody(&mut self) -> StartError {
        if let Some(failure) = self.last.take() {
            return self.ended(failure);
        }
        let mut names: Vec<&str> = self.candidates.iter().map(|candidate| candidate.model.backend.name()).collect();
        names.dedup();
        let names = names.join(", ");
        let Some(Refused { wait, because }) = self.refused.take() else {
            let message = format!("{names}: no provider is left to ask");
            return StartError::Unavailable { message, retry_after: Duration::from_secs(1), last: None };
        };
        let Failure { category, message, .. } = &because.last;
        let message = format!(
            "circuit open: {names} skipped for {:.0?} after repeated failures; the last one: {}: {message}",
            wait,
            category.name()
        );
        StartError::Unavailable { message, retry_after: wait.min(MAX_WAIT), last: Some(because.last.clone()) }
    }

    fn tell(&mut self, message: String) {
        tracing::info!(run = self.run, "{message}");
        self.events.push(Event::Notice { message });
    }
}

impl Drop for AttemptLoop {
    /// Given up, or never begun.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.store_writer.leave(&self.shared.tasks.tracker, thread.failed(), async {});
        }
    }
}

/// The first line, and not too much of it.
fn brief(message: &str) -> String {
    let line = message.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let mut brief: String = line.chars().take(MAX_MESSAGE).collect();
    if brief.len() < line.len() {
        brief.push('…');
    }
    brief
}

#[cfg(test)]
#[path = "attempts_tests.rs"]
mod tests;
