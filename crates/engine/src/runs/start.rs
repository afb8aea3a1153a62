//! The start of a run: admission, registration, the session, and the first attempt.

use std::sync::{Arc, Mutex, PoisonError};

use trunkline_core::failure::{Category, Failure};
use trunkline_core::near::near;
use trunkline_core::turn::{OnDisconnect, Surface, Turn};

use super::attached::Run;
use super::attempts::AttemptLoop;
use super::driver::RunDriver;
use super::live::RunRegistration;
use super::log::Log;
use crate::admission::Reserved;
use crate::engine::Engine;
use crate::router::Candidate;
use crate::router::models::Models;
use crate::session::resolve::Resolver;
use crate::start_error::StartError;
use crate::store_writer::{RunEnd, RunStart};

impl Engine {
    /// Starts a turn: waits for a slot, makes its workspace, starts its CLI; and if that fails, whoever may take its place.
    pub async fn start(&self, mut turn: Turn) -> Result<Run, StartError> {
        let ready = self.reserve(self.ready(&turn)?, &turn).await?;
        match ready.on_disconnect(&turn) {
            OnDisconnect::Cancel => {
                let run = turn.run.take().unwrap_or_else(super::name);
                let presence = self.shared.runs.registry.begin(&run, &turn.owner, None);
                self.begin(ready, turn, presence).await.map(Run::pulled)
            }
            OnDisconnect::Detach => self.start_detached(ready.durably(), turn).await,
        }
    }

    /// Who may answer a turn.
    pub(crate) fn ready(&self, turn: &Turn) -> Result<AdmittedTurn, StartError> {
        let models = self.models();
        let Some(candidates) = models.candidates(&turn.model) else {
            return Err(self.unknown_model(&models, &turn.model));
        };
        let candidates = able(turn, candidates)?;
        self.shared.admission.admit(&turn.owner, &turn.model)?;
        Ok(AdmittedTurn { candidates, models, reserved: None, recording: Recording::Queued })
    }

    /// Takes what a run needs before it is promised: a disk that takes its record, and a slot or a place in the queue.
    pub(crate) async fn reserve(&self, ready: AdmittedTurn, turn: &Turn) -> Result<AdmittedTurn, StartError> {
        self.shared.store_writer.check_storage(turn.surface).await?;
        let first = ready.candidates.first().map_or(turn.model.as_str(), |first| first.model.name.as_str());
        let reserved = self.shared.admission.reserve(&turn.owner, first)?;
        Ok(AdmittedTurn { reserved: Some(reserved), ..ready })
    }

    /// Says what there is instead, and of a CLI that is known why it is not among that.
    fn unknown_model(&self, models: &Models, name: &str) -> StartError {
        let names = models.names();
        let near = near(name, names.iter().map(String::as_str));
        let cli = models.known_cli(name, self.shared.settings.variable("PATH"));
        StartError::UnknownModel { near, models: names, cli }
    }

    /// Begins the run that is registered there. Whoever stops it there stops it here.
    pub(crate) async fn begin(
        &self,
        ready: AdmittedTurn,
        turn: Turn,
        presence: Arc<RunRegistration>,
    ) -> Result<RunDriver, StartError> {
        let live = Arc::clone(&presence);
        tokio::select! {
            biased;
            () = live.stopped() => Err(StartError::cancelled(&live.id)),
            begun = self.climb(ready, turn, presence) => begun.map_err(|error| error.of_run(&live.id)),
        }
    }

    async fn climb(
        &self,
        ready: AdmittedTurn,
        turn: Turn,
        presence: Arc<RunRegistration>,
    ) -> Result<RunDriver, StartError> {
        let (shared, run) = (&self.shared, presence.id.clone());
        let first = ready.candidates.first().map(|first| &first.model);
        let place = first.map(|model| model.repo.display().to_string());
        let provider = first.map(|model| model.backend.name().to_owned());
        let begun = RunStart {
            detached: presence.is_detached(),
            presence,
            session: turn.session.as_ref(),
            place: place.unwrap_or_default(),
            provider: provider.unwrap_or_default(),
            turn: &turn,
            gateway: &shared.identity.mark,
        };
        let log = Log::new(&shared.settings.state, &run, shared.settings.secrets.clone());
        let secrets = &shared.settings.secrets;
        let recorder = match ready.recording {
            Recording::Queued => shared.store_writer.record(begun, log, secrets),
            Recording::Durable => {
                let recorded = shared.store_writer.record_durably(begun, log, secrets).await;
                recorded.map_err(|error| shared.store_writer.unwritable(error))?
            }
        };
        let reserved = Mutex::new(ready.reserved);
        let resolver = Resolver { sessions: &shared.sessions, admission: &shared.admission, turn: &turn, reserved };
        let resolved = match resolver.resolve(ready.candidates).await {
            Ok(resolved) => resolved,
            Err(error) => {
                let failure = error.as_failure();
                shared.tasks.tracker.spawn(recorder.end(RunEnd { provider: "", session: None, result: Err(&failure) }));
                return Err(error);
            }
        };
        let reserved = resolver.reserved.into_inner().unwrap_or_else(PoisonError::into_inner);
        let named = turn.session.is_some();
        let ladder = AttemptLoop::new(Arc::clone(shared), ready.models, run, turn, resolved, reserved);
        if let Some(thread) = ladder.thread.as_ref().filter(|thread| thread.resumes() && !named) {
            recorder.continues(thread.id(), &ladder.turn);
        }
        RunDriver::start(ladder, recorder).await
    }
}

/// A turn's candidates, of whom one at least can do what it asks for.
pub(crate) struct AdmittedTurn {
    models: Arc<Models>,
    candidates: Vec<Candidate>,
    reserved: Option<Reserved>,
    recording: Recording,
}

/// When a run may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recording {
    /// Once its record is queued: the client waits for the answer.
    Queued,
    /// Once its record is in the store: the client may come back for the answer.
    Durable,
}

impl AdmittedTurn {
    /// The same, of a run that is found by its name later.
    pub(crate) fn durably(self) -> Self {
        Self { recording: Recording::Durable, ..self }
    }

    /// What becomes of the run if its client goes away. Who leaves a page, a channel or a terminal means to stop it.
    pub(crate) fn on_disconnect(&self, turn: &Turn) -> OnDisconnect {
        let of_model = || match turn.surface {
            Surface::Http => self.candidates.first().map(|first| first.model.on_disconnect),
            Surface::Run | Surface::Repl | Surface::Page | Surface::Discord => None,
        };
        turn.on_disconnect.or_else(of_model).unwrap_or_default()
    }
}

/// Those that can do what the turn asks for; who cannot is passed over. If nobody can, the first says why.
fn able(turn: &Turn, candidates: Vec<Candidate>) -> Result<Vec<Candidate>, Failure> {
    let refused = |candidate: &Candidate| {
        let backend = &candidate.model.backend;
        if turn.images().next().is_some() && !backend.takes_images() {
            let message = format!("{} takes no pictures on this path; codex and opencode do", backend.name());
            return Err(Failure::new(Category::Validation, message));
        }
        Ok(())
    };
    let first = candidates.first().map(refused);
    let able: Vec<Candidate> = candidates.into_iter().filter(|candidate| refused(candidate).is_ok()).collect();
    match first {
        Some(Err(failure)) if able.is_empty() => Err(failure),
        _ => Ok(able),
    }
}
