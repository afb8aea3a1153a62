//! Tries one candidate after the other until an attempt runs: delays, circuits, slots and the attempts so far.
//!
//! The decisions are made by [`crate::router`]; this module carries them out.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use trunkline_core::event::{Answer, Attempted, Event, Receipt};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::Model;
use trunkline_core::turn::{Message, Turn};

use crate::admission::{Permit, Reserved};
use crate::attempt::begin::begin;
use crate::attempt::events::Attempt;
use crate::attempt::request::{AttemptRequest, BeginError};
use crate::router::models::Models;
use crate::router::{Candidate, Exposure, Failed, Next, Pass, Refused, Why, circuit_of, next};
use crate::runs::structured::{AnswerCheck, CheckTime, PreparedTurn, StructuredOutput};
use crate::sandbox;
use crate::schema::AnswerContract;
use crate::session::resolve::ResolvedSession;
use crate::session::{SessionPlace, SessionThread, end_of_past};
use crate::shared::Shared;
use crate::start_error::StartError;

/// Maximum length of the message of a failed attempt.
const MAX_MESSAGE_CHARS: usize = 300;

/// Maximum `Retry-After` for a client when the circuits of all candidates are open.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// Minimum wait for a slot that is reported to the client.
const MIN_REPORTED_WAIT: Duration = Duration::from_secs(1);

/// `Retry-After` when the machine cannot start more processes.
const EXHAUSTED_RETRY_AFTER: Duration = Duration::from_secs(5);

/// A turn, its candidates, and the attempts so far.
pub(crate) struct AttemptLoop {
    pub(crate) shared: Arc<Shared>,
    models: Arc<Models>,
    pub(crate) turn: Turn,
    pub(crate) run: String,
    candidates: Vec<Candidate>,
    /// Index of the current candidate.
    at: usize,
    /// Retries of the current candidate.
    retries: u32,
    /// Delay before the next attempt.
    wait: Option<Duration>,
    /// Attempts that have failed.
    pub(crate) attempts: Vec<Attempted>,
    /// Failure of the last attempt.
    last: Option<Failure>,
    /// The open circuit that can be tried again first.
    refused: Option<Refused>,
    /// Events for the client that were not returned yet: notices and ended attempts.
    pub(crate) events: Vec<Event>,
    /// The session, locked from the first attempt to the last, so that no other turn runs between them.
    pub(crate) thread: Option<SessionThread>,
    /// State of the session's workspace when the turn began. Each attempt starts there.
    place: Option<SessionPlace>,
    /// Slot or place in the queue that was reserved for the first attempt before the run was accepted.
    reserved: Option<Reserved>,
    /// Notes about the turn for the client, in its answer.
    pub(crate) notes: Vec<String>,
    /// Set if the gateway checks the form of the answer.
    structured: Option<StructuredOutput>,
    /// Resolved when the processes of the previous attempt are gone.
    pub(crate) predecessor: Option<oneshot::Receiver<()>>,
}

/// An attempt that is running.
pub(crate) struct RunningAttempt {
    pub(crate) attempt: Attempt,
    pub(crate) pass: Pass,
    pub(crate) model: Arc<Model>,
    pub(crate) began: Instant,
}

/// The loop, and the attempt that it started.
pub(crate) type AttemptStart = (AttemptLoop, Result<RunningAttempt, StartError>);

impl AttemptLoop {
    pub(crate) fn new(
        shared: Arc<Shared>,
        models: Arc<Models>,
        run: String,
        mut turn: Turn,
        resolved: ResolvedSession,
        reserved: Option<Reserved>,
    ) -> Self {
        shared.routing.retries.earn();
        let notice = resolved.notice();
        let ResolvedSession { candidates, thread } = resolved;
        // From here on, this is the provider's own session id.
        turn.session = thread.as_ref().and_then(|thread| thread.native().cloned());
        let mut attempt_loop = Self {
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
            notes: Vec::new(),
            structured: None,
            predecessor: None,
            reserved,
        };
        if let Some(notice) = notice {
            attempt_loop.notify(notice);
        }
        attempt_loop
    }

    /// A turn that continues an attempt of another run. If that attempt fails, another one gets the whole conversation.
    pub(crate) fn continuing(
        shared: Arc<Shared>,
        models: Arc<Models>,
        run: String,
        turn: Turn,
        model: &Arc<Model>,
        thread: Option<SessionThread>,
    ) -> Self {
        let candidates = vec![Candidate { model: Arc::clone(model), why: Why::Asked }];
        let mut attempt_loop = Self::new(shared, models, run, turn, ResolvedSession { candidates, thread: None }, None);
        attempt_loop.thread = thread;
        attempt_loop
    }

    /// Adds the form that answers must have.
    pub(crate) fn with_contract(mut self, contract: Option<Arc<AnswerContract>>) -> Self {
        self.structured = contract.map(StructuredOutput::new);
        self
    }

    /// Whether text is not shown before the whole answer was checked.
    pub(crate) fn holds_text(&self, model: &Model) -> bool {
        self.structured.is_some() && self.check_time(model) == CheckTime::BeforeShown
    }

    fn check_time(&self, model: &Model) -> CheckTime {
        StructuredOutput::check_time(model, self.turn.shown)
    }

    /// Checks the form of an answer.
    pub(crate) fn check_answer(&mut self, model: &Model, answer: Answer, receipt: Option<&Receipt>) -> AnswerCheck {
        let time = self.check_time(model);
        let Some(structured) = &mut self.structured else { return AnswerCheck::Accepted(answer) };
        let thread = self.thread.as_ref().filter(|_| model.backend.resumes());
        structured.check(model, time, answer, thread.and_then(SessionThread::native_after_attempt), receipt)
    }

    /// Prepares the attempt that repairs an answer. It starts where the attempt with that answer ended.
    pub(crate) fn repair_after(&mut self, failure: Failure) {
        self.notify("the answer does not match the schema; asking for a corrected one".to_owned());
        self.place = self.thread.as_ref().and_then(SessionThread::place_after_attempt).or_else(|| self.place.take());
        self.last = Some(failure);
    }

    /// Returns the receipt of the run's workspace.
    pub(crate) fn receipt(&self, last: Option<Receipt>) -> Option<Receipt> {
        match &self.structured {
            Some(structured) => structured.receipt(last),
            None => last,
        }
    }

    /// Tries one candidate after the other until an attempt runs. Dropping the future cancels the turn.
    pub(crate) async fn start_next(mut self) -> AttemptStart {
        let started = self.try_candidates().await;
        (self, started)
    }

    async fn try_candidates(&mut self) -> Result<RunningAttempt, StartError> {
        if let Some(gone) = self.predecessor.take() {
            // A dropped sender also means that the processes are gone.
            let _ = gone.await;
        }
        loop {
            if let Some(wait) = self.wait.take() {
                tokio::time::sleep(wait).await;
            }
            let Some(model) = self.candidates.get(self.at).map(|candidate| Arc::clone(&candidate.model)) else {
                return Err(self.no_candidate_left());
            };
            let circuit = circuit_of(&model);
            if let Err(refused) = self.shared.routing.circuits.check(&circuit) {
                self.skip(&model, refused);
                continue;
            }
            let permit = match self.shared.admission.enter(&self.turn.owner, &model.name, self.reserved.take()).await {
                Ok(permit) => permit,
                // No other candidate would get a slot. An earlier failure is the better explanation.
                Err(busy) => return Err(self.last.take().map_or(busy, |failure| self.ended(failure))),
            };
            // Entered only once there is a slot: a trial that waits for one would keep other turns from trying.
            let mut pass = match self.shared.routing.circuits.enter(&circuit, self.models.policy().breaker) {
                Ok(pass) => pass,
                Err(refused) => {
                    self.skip(&model, refused);
                    continue;
                }
            };
            if let Some((waited, ahead)) = permit.waited.filter(|(waited, _)| *waited >= MIN_REPORTED_WAIT) {
                self.notify(format!("waited {:.0?} for a slot; {ahead} were ahead", waited));
            }
            let began = Instant::now();
            match self.begin(&model, permit).await {
                Ok(attempt) => {
                    if let Some(thread) = &mut self.thread {
                        thread.attempt_started(&model);
                        if let Some(structured) = &self.structured {
                            structured.continue_session(thread, &model);
                        }
                    }
                    return Ok(RunningAttempt { attempt, pass, model, began });
                }
                Err(BeginError::Exhausted(message)) => {
                    let busy = StartError::Busy { message, retry_after: EXHAUSTED_RETRY_AFTER };
                    return Err(self.last.take().map_or(busy, |failure| self.ended(failure)));
                }
                Err(BeginError::Failed(failure)) => {
                    self.record_attempt(&model, began, Some(&failure), None);
                    if self.is_session_lost(&failure) && self.replace_session_with_history(&failure).await {
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
        let prepared = match &self.structured {
            Some(structured) => structured.prepare(&self.turn, model),
            None => PreparedTurn { turn: Cow::Borrowed(&self.turn), schema: None },
        };
        let attempt = AttemptRequest {
            turn: &prepared.turn,
            schema: prepared.schema,
            model,
            models: &self.models,
            id: &self.attempt_id(),
            run: &self.run,
            session: self.thread.as_ref().map(|thread| (thread.id().clone(), thread.guard())),
            place: self.place.clone(),
            again: !self.attempts.is_empty(),
            standby: another.then(|| Arc::clone(self.models.policy())),
        };
        begin(&self.shared, attempt, permit).await
    }

    fn ended(&self, failure: Failure) -> StartError {
        StartError::Failed { failure, run: self.run.clone(), attempts: self.attempts.clone() }
    }

    /// Records an attempt that has ended.
    pub(crate) fn record_attempt(
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
        if failure.is_some() {
            self.attempts.push(attempted.clone());
        }
        self.events.push(Event::Attempted(attempted.into()));
    }

    /// Decides what follows a failure. Returns the failure if no further attempt does. A circuit counts failed turns,
    /// not failed attempts. Retries that a CLI made by itself count as retries.
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
            self.notify("retry budget exhausted: too many recent failures".to_owned());
            decided = next(&policy, &Failed { retries: policy.max_retries, ..failed }, 0.0);
        }
        let name = self.candidates[self.at].model.name.clone();
        let category = failure.category.name();
        // A model name that the client made up does not reflect on the provider.
        let invented = self.candidates[self.at].why == Why::AskedModel && failure.category == Category::Unknown;
        if !invented && (!matches!(decided, Next::Retry { .. }) || pass.is_trial()) {
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
                let remedy = if agent { "; with worktree: true it would have been" } else { "" };
                let why = "not retried: output had been shown, or a tool had run or may have run";
                return Some(failure.hint(format!("{why}{remedy}")));
            }
            Next::Retry { after } => {
                self.notify(format!("{name} failed ({category}); trying again in {after:.1?}"));
                self.retries += 1;
                self.wait = Some(after);
            }
            Next::Fallback => {
                let other = self.candidates[self.at + 1].model.name.clone();
                self.notify(format!("{name} failed ({category}); trying {other}"));
                self.advance_to_next_candidate();
            }
        }
        self.last = Some(failure);
        None
    }

    /// Whether the provider was asked to resume a session and reports that it cannot. After any other failure, whatever
    /// its category, running the CLI again could do the same work twice.
    pub(crate) fn is_session_lost(&self, failure: &Failure) -> bool {
        self.turn.session.is_some() && failure.session_lost
    }

    /// Replaces a lost session with its history, from the request or else from the archive. The next attempt starts a
    /// new session. Returns false if the history is not known.
    pub(crate) async fn replace_session_with_history(&mut self, failure: &Failure) -> bool {
        let Some(thread) = &mut self.thread else { return false };
        let reason = format!("the session could not be resumed: {}", brief(&failure.message));
        if end_of_past(&self.turn.messages).is_some() {
            thread.start_over(reason, Some(&self.turn.messages));
        } else {
            self.shared.sessions.wait_until_written(thread.id()).await;
            self.shared.store_writer.flush().await;
            let mut history: Vec<Message> = self.shared.sessions.registry.archived_messages(thread.id()).await;
            if history.is_empty() {
                return false;
            }
            thread.start_over(reason, None);
            history.append(&mut self.turn.messages);
            self.turn.messages = history;
        }
        self.turn.session = None;
        self.notify("the session could not be resumed; starting a new one with its history".to_owned());
        true
    }

    /// Continues after a failure to resume the session.
    pub(crate) async fn start_without_session(
        mut self,
        failure: Failure,
        own_retries: u32,
        mut pass: Pass,
    ) -> AttemptStart {
        if !self.replace_session_with_history(&failure).await
            && let Some(failure) = self.decide(failure, Exposure::Nothing, own_retries, &mut pass)
        {
            let ended = self.ended(failure);
            return (self, Err(ended));
        }
        drop(pass);
        self.start_next().await
    }

    /// Number of attempts, including the one that is running.
    pub(crate) fn started(&self) -> usize {
        self.attempts.len() + 1
    }

    /// Id of the next attempt. The first one has the id of its run, because it usually is the only one.
    fn attempt_id(&self) -> String {
        match self.attempts.len() {
            0 => self.run.clone(),
            before => format!("{}-{}", self.run, before + 1),
        }
    }

    fn advance_to_next_candidate(&mut self) {
        self.at += 1;
        self.retries = 0;
    }

    /// Skips a provider whose circuit is open, if the failures that opened it allow a fallback. If this turn has
    /// already tried the provider, its own failure decides.
    fn skip(&mut self, model: &Model, refused: Refused) {
        let policy = self.models.policy();
        let may_fall_back = match &self.last {
            Some(failure) if self.retries > 0 => policy.falls_back(failure.category),
            Some(_) | None => refused.because.falls_back(policy),
        };
        self.notify(format!(
            "{}: circuit open: skipped for {:.0?} after repeated failures ({})",
            model.name,
            refused.wait,
            refused.because.last.category.name()
        ));
        if self.refused.as_ref().is_none_or(|soonest| refused.wait < soonest.wait) {
            self.refused = Some(refused);
        }
        if may_fall_back {
            self.advance_to_next_candidate();
        } else {
            self.at = self.candidates.len();
        }
    }

    /// Returns the error for a turn without further candidates.
    fn no_candidate_left(&mut self) -> StartError {
        if let Some(failure) = self.last.take() {
            return self.ended(failure);
        }
        let mut names: Vec<&str> = self.candidates.iter().map(|candidate| candidate.model.backend.name()).collect();
        names.dedup();
        let names = names.join(", ");
        let Some(Refused { wait, because }) = self.refused.take() else {
            let message = format!("{names}: no provider left to try");
            return StartError::Unavailable { message, retry_after: Duration::from_secs(1), last: None };
        };
        let Failure { category, message, .. } = &because.last;
        let message = format!(
            "circuit open: {names} skipped for {:.0?} after repeated failures; the last one: {}: {message}",
            wait,
            category.name()
        );
        StartError::Unavailable { message, retry_after: wait.min(MAX_RETRY_AFTER), last: Some(because.last.clone()) }
    }

    /// Logs a message and sends it to the client.
    fn notify(&mut self, message: String) {
        tracing::info!(run = self.run, "{message}");
        self.events.push(Event::Notice { message });
    }
}

impl Drop for AttemptLoop {
    /// The turn was cancelled, or never started.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.store_writer.leave_session(&self.run, thread.failed());
        }
    }
}

/// Returns the first line of a message, shortened to [`MAX_MESSAGE_CHARS`].
fn brief(message: &str) -> String {
    let line = message.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let mut brief: String = line.chars().take(MAX_MESSAGE_CHARS).collect();
    if brief.len() < line.len() {
        brief.push('…');
    }
    brief
}

#[cfg(test)]
#[path = "attempts_tests.rs"]
mod tests;
