//! The start of a run: admission, registration, the session, and the first attempt.

use std::sync::{Arc, Mutex, PoisonError};

use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::Backend;
use trunkline_core::near::near;
use trunkline_core::turn::{OnDisconnect, Surface, Turn};
use trunkline_store::KeyClaim;

use super::attached::Run;
use super::attempts::{AttemptLoop, RunningAttempt};
use super::driver::RunDriver;
use super::live::RunRegistration;
use super::parked::{ParkedAttempt, TakenAttempt};
use super::parked_calls::ToolResults;
use super::waiting_client::PatienceDeadline;
use crate::admission::Reserved;
use crate::engine::Engine;
use crate::router::models::Models;
use crate::router::{Candidate, check_servers, ignored_members};
use crate::schema::AnswerContract;
use crate::session::resolve::SessionResolver;
use crate::start_error::StartError;
use crate::store_writer::{Recorder, RunEnd, RunStart};

/// Note for a client whose results nothing waits for.
const GONE_NOTE: &str =
    "the turn that asked for these results has ended; a new turn was started with the whole conversation";

impl Engine {
    /// Starts a turn: waits for a slot, creates its workspace and starts its CLI. If that fails, the next candidate is
    /// tried.
    pub async fn start(&self, mut turn: Turn) -> Result<Run, StartError> {
        let admitted = self.admit(&mut turn)?;
        if let ToolResults::Answered(run) = &admitted.results
            && let Some(joined) = self.join_repeated(&turn.owner, run, turn.patience).await
        {
            return joined.start.await;
        }
        let admitted = self.reserve(admitted, &turn)?;
        match admitted.on_disconnect(&turn) {
            OnDisconnect::Cancel => {
                let deadline = turn.patience.map(PatienceDeadline::starting_now);
                let run = turn.run.take().unwrap_or_else(super::new_id);
                let registration = self.shared.runs.registry.begin(&run, &turn.owner, None);
                self.begin(admitted, turn, registration).await.map(|driver| {
                    let tasks = self.shared.tasks.tracker.clone();
                    Run::pulled(driver, deadline, tasks)
                })
            }
            OnDisconnect::Detach => self.start_detached(admitted, turn).await,
        }
    }

    /// Replaces an alias by its model, finds the candidates for the turn, and checks the client's limits.
    pub(crate) fn admit(&self, turn: &mut Turn) -> Result<AdmittedTurn, StartError> {
        let models = self.models();
        if let Some(name) = models.side_requests().model.as_ref().filter(|_| turn.side.is_some()) {
            turn.model.clone_from(name);
        }
        if let Some(alias) = models.alias(&turn.model) {
            turn.model.clone_from(&alias.target);
        }
        let Some(candidates) = models.candidates(&turn.model) else {
            return Err(self.unknown_model(&models, &turn.model));
        };
        let candidates = allowing_servers(turn, capable(turn, candidates)?)?;
        let mut candidates = honouring(turn, candidates)?;
        if !turn.servers.is_empty() {
            let secrets = turn.servers.iter().flat_map(|requested| requested.server.secrets());
            self.shared.settings.secrets.learn_of_request(secrets);
        }
        let contract = contract(turn, &candidates)?;
        if turn.side.is_some() {
            for candidate in &mut candidates {
                candidate.model = models.side_requests().for_side_request(&candidate.model);
            }
        }
        self.shared.admission.admit(&turn.owner, &turn.model)?;
        let results = self.shared.runs.parked.note(turn)?;
        Ok(AdmittedTurn { candidates, models, reserved: None, key: None, results, contract })
    }

    /// Reserves a slot or a place in the queue, before a run is accepted.
    pub(crate) fn reserve(&self, admitted: AdmittedTurn, turn: &Turn) -> Result<AdmittedTurn, StartError> {
        let first = admitted.candidates.first().map_or(turn.model.as_str(), |first| first.model.name.as_str());
        let reserved = self.shared.admission.reserve(&turn.owner, first)?;
        Ok(AdmittedTurn { reserved: Some(reserved), ..admitted })
    }

    /// Lists the available models. For the name of a known CLI, adds why it is not available.
    pub(crate) fn unknown_model(&self, models: &Models, name: &str) -> StartError {
        let names = models.names();
        let near = near(name, names.iter().map(String::as_str));
        let cli = models.known_cli(name, self.shared.settings.variable("PATH"));
        StartError::UnknownModel { near, models: names, cli }
    }

    /// Begins a registered run. Stopping the run through the registry cancels the start.
    pub(crate) async fn begin(
        &self,
        admitted: AdmittedTurn,
        turn: Turn,
        registration: Arc<RunRegistration>,
    ) -> Result<RunDriver, StartError> {
        let live = Arc::clone(&registration);
        tokio::select! {
            biased;
            () = live.stopped() => Err(StartError::cancelled(&live.id)),
            begun = self.start_attempts(admitted, turn, registration) => begun.map_err(|error| error.of_run(&live.id)),
        }
    }

    async fn start_attempts(
        &self,
        admitted: AdmittedTurn,
        turn: Turn,
        registration: Arc<RunRegistration>,
    ) -> Result<RunDriver, StartError> {
        let (shared, run) = (&self.shared, registration.id.clone());
        let first = admitted.candidates.first().map(|first| &first.model);
        let place = first.map(|model| model.repo.display().to_string());
        let provider = first.map(|model| model.backend.name().to_owned());
        let begun = RunStart {
            detached: registration.is_detached(),
            presence: registration,
            session: turn.session.as_ref(),
            place: place.unwrap_or_default(),
            provider: provider.unwrap_or_default(),
            turn: &turn,
            gateway: &shared.identity.mark,
            key: admitted.key,
        };
        let must_record = shared.store_writer.must_record(turn.surface);
        if must_record {
            shared.store_writer.check_storage()?;
        }
        let (mut recorder, recorded) = shared.store_writer.record(begun, &shared.settings.secrets);
        if let Err(error) = recorded
            && must_record
        {
            recorder.discard();
            return Err(shared.store_writer.unwritable(error));
        }
        if let Err(error) = shared.store_writer.sync().await
            && must_record
        {
            let error = shared.store_writer.unwritable(error);
            let end = RunEnd { provider: "", session: None, result: Err(&error.as_failure()), write: None };
            // A failure is logged. The run is over in any case.
            let _ = shared.store_writer.end(recorder, end);
            return Err(error);
        }
        recorder.set_recorded();
        if let Some(taken) = TakenAttempt::take(&shared.runs.parked, &turn, &run).await {
            return self.continue_parked(admitted, turn, recorder, taken).await;
        }
        let reserved = Mutex::new(admitted.reserved);
        let resolver =
            SessionResolver { sessions: &shared.sessions, admission: &shared.admission, turn: &turn, reserved };
        let resolved = match resolver.resolve(admitted.candidates).await {
            Ok(resolved) => resolved,
            Err(error) => {
                let failure = error.as_failure();
                let end = RunEnd { provider: "", session: None, result: Err(&failure), write: None };
                // A failure is logged. The run is over in any case.
                let _ = shared.store_writer.end(recorder, end);
                return Err(error);
            }
        };
        let reserved = resolver.reserved.into_inner().unwrap_or_else(PoisonError::into_inner);
        let takes_tools = |candidate: &Candidate| candidate.model.backend.takes_client_tools();
        // Also if another request has taken the process in the meantime.
        let lost = admitted.results != ToolResults::None && resolved.candidates.iter().any(takes_tools);
        let attempt_loop = AttemptLoop::new(Arc::clone(shared), admitted.models, run, turn, resolved, reserved);
        let mut attempt_loop = attempt_loop.with_contract(admitted.contract);
        if lost {
            attempt_loop.notes.push(GONE_NOTE.to_owned());
        }
        // Also if the client named the session: it may have waited for another turn, or used the provider's id.
        if let Some(thread) = attempt_loop.thread.as_ref().filter(|thread| thread.resumes()) {
            recorder.continues(thread.id(), &attempt_loop.turn);
        }
        RunDriver::start(attempt_loop, recorder).await
    }
}

impl Engine {
    /// Continues an attempt with the results of the client's tools.
    async fn continue_parked(
        &self,
        admitted: AdmittedTurn,
        mut turn: Turn,
        mut recorder: Recorder,
        taken: TakenAttempt,
    ) -> Result<RunDriver, StartError> {
        let (shared, run) = (&self.shared, recorder.live().id.clone());
        let TakenAttempt { parked, results } = taken;
        let permit = match shared.admission.enter(&turn.owner, &parked.model.name, admitted.reserved).await {
            Ok(permit) => permit,
            Err(busy) => {
                parked.end(shared, "there was no slot for the run with the results");
                let end = RunEnd { provider: "", session: None, result: Err(&busy.as_failure()), write: None };
                // A failure is logged. The run is over in any case.
                let _ = shared.store_writer.end(recorder, end);
                return Err(busy);
            }
        };
        let ParkedAttempt { mut attempt, pass, model, began, mut thread, .. } = parked;
        if let Some(thread) = &mut thread {
            thread.continue_in(&turn);
            turn.session = Some(thread.id().clone());
            recorder.continues(thread.id(), &turn);
        }
        let unknown = || Err("the client sent no result for this call".to_owned());
        attempt.resume(&run, permit, |id| results.get(id).cloned().map_or_else(unknown, Ok));
        turn.session = None;
        let attempt_loop = AttemptLoop::continuing(Arc::clone(shared), admitted.models, run, turn, &model, thread);
        let attempt_loop = attempt_loop.with_contract(admitted.contract);
        Ok(RunDriver::continuing(attempt_loop, RunningAttempt { attempt, pass, model, began }, recorder))
    }
}

/// A turn with at least one candidate that can run it.
pub(crate) struct AdmittedTurn {
    models: Arc<Models>,
    candidates: Vec<Candidate>,
    reserved: Option<Reserved>,
    key: Option<KeyClaim>,
    results: ToolResults,
    /// Form of the answer, if the gateway checks it.
    contract: Option<Arc<AnswerContract>>,
}

impl AdmittedTurn {
    pub(crate) fn with_key(self, key: KeyClaim) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Whether the run has an idempotency key by which other requests can join it.
    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Policy for when the client disconnects. A user who leaves a page, a channel or a terminal means to stop the run,
    /// so the setting of the model applies to HTTP clients only.
    pub(crate) fn on_disconnect(&self, turn: &Turn) -> OnDisconnect {
        let of_model = || match turn.surface {
            Surface::Http => self.candidates.first().map(|first| first.model.on_disconnect),
            Surface::Run | Surface::Repl | Surface::Page | Surface::Discord => None,
        };
        turn.on_disconnect.or_else(of_model).unwrap_or_default()
    }
}

/// Returns the candidates that can run the turn. If there is none, the error is the reason of the first candidate.
fn capable(turn: &Turn, candidates: Vec<Candidate>) -> Result<Vec<Candidate>, Failure> {
    let refused = |candidate: &Candidate| {
        let backend = &candidate.model.backend;
        if turn.images().next().is_some() && !backend.takes_images() {
            let message = format!("{} does not accept images; codex and opencode do", backend.name());
            return Err(Failure::new(Category::Validation, message));
        }
        if turn.options.choices.is_some() && !backend.gives_choices() {
            let message = format!("{} gives one answer; only HTTP upstreams take `n` greater than 1", backend.name());
            return Err(Failure::new(Category::Validation, message));
        }
        Ok(())
    };
    let first = candidates.first().map(refused);
    let capable: Vec<Candidate> = candidates.into_iter().filter(|candidate| refused(candidate).is_ok()).collect();
    match first {
        Some(Err(failure)) if capable.is_empty() => Err(failure),
        _ => Ok(capable),
    }
}

/// Returns the candidates that honour every member of the request, or do not mind. If there is none, the error names the
/// members that the first candidate ignores.
fn honouring(turn: &Turn, candidates: Vec<Candidate>) -> Result<Vec<Candidate>, StartError> {
    let refuses = |candidate: &Candidate| {
        let strict = turn.side.is_none() && candidate.model.strict_parameters;
        Some(if strict { ignored_members(turn, &candidate.model) } else { Vec::new() }).filter(|list| !list.is_empty())
    };
    let first = candidates.first().and_then(|first| Some((first.model.name.clone(), refuses(first)?)));
    let accepting: Vec<Candidate> = candidates.into_iter().filter(|candidate| refuses(candidate).is_none()).collect();
    match first {
        Some((model, ignored)) if accepting.is_empty() => Err(StartError::InvalidMember {
            code: "unsupported_parameter",
            message: format!("no effect on {model}: {} (strictParameters)", ignored.join(", ")),
            member: ignored.into_iter().next().unwrap_or_default(),
        }),
        _ => Ok(accepting),
    }
}

/// Returns the candidates that allow the MCP servers of the request. The first candidate must: another one that ignores the servers
/// would hide that they are refused.
fn allowing_servers(turn: &Turn, candidates: Vec<Candidate>) -> Result<Vec<Candidate>, StartError> {
    if turn.servers.is_empty() {
        return Ok(candidates);
    }
    if let Some(Err((member, message))) = candidates.first().map(|first| check_servers(turn, &first.model)) {
        return Err(StartError::InvalidMember { code: "invalid_value", member, message });
    }
    Ok(candidates.into_iter().filter(|candidate| check_servers(turn, &candidate.model).is_ok()).collect())
}

/// Compiles the form of the answer. An upstream may know schemas that the gateway does not: its answers are not checked then, nor
/// if it gives several.
fn contract(turn: &Turn, candidates: &[Candidate]) -> Result<Option<Arc<AnswerContract>>, StartError> {
    let Some(format) = turn.answer_format.as_ref().filter(|_| turn.options.choices.is_none()) else { return Ok(None) };
    match AnswerContract::compile(format) {
        Ok(compiled) => Ok(Some(Arc::new(compiled))),
        Err(_) if candidates.iter().all(|candidate| matches!(candidate.model.backend, Backend::Api(_))) => Ok(None),
        Err(reason) => Err(StartError::InvalidMember {
            code: "invalid_value",
            message: format!("invalid schema in `{}`: {reason}", format.member),
            member: format.member.to_owned(),
        }),
    }
}
