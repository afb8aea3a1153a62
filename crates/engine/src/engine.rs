//! The one door: a turn goes in, a run comes out.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trunkline_core::api::Api;
use trunkline_core::event::Attempted;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::{Model, Sandbox};
use trunkline_core::near::near;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{self, OnDisconnect, Surface, Turn};
use trunkline_process::Keepers;
use trunkline_store::Store;
use trunkline_upstream::Upstream;

use crate::alive::Alive;
use crate::archive::{Archive, Begun, End};
use crate::compiled::Compiling;
use crate::drift::Drift;
use crate::explain::{self, Explanation};
use crate::gate::{Allowance, Caps, Gate, Reserved};
use crate::git::Git;
use crate::health::{self, Depth, Report};
use crate::ladder::Ladder;
use crate::launch::Launch;
use crate::models::Models;
use crate::owner::Owner;
use crate::plan::Plan;
use crate::router::{Candidate, Circuits, Retries, circuit_of};
use crate::run::Course;
use crate::runs::{self, Log, Presence, Registry, Run, Sweeping};
use crate::sandbox::Bounds;
use crate::session::Sessions;
use crate::session::resolve::Resolver;
use crate::storage::Storage;
use crate::warm::{self, Budget, Wish};
use crate::worktree::Worktrees;

/// Everything that can run, and the limits under which it does. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
}

/// What an engine must be told once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The environment runs inherit from.
    pub env: Vec<(OsString, OsString)>,
    /// Where private files, homes and the list of worktrees are kept.
    pub state: PathBuf,
    /// Where worktrees are made.
    pub worktrees: PathBuf,
    pub caps: Caps,
    /// Whether runs are confined, where a model does not say.
    pub sandbox: Sandbox,
    /// Time limit of a git process, and of saving a run's work.
    pub git_timeout: Duration,
    /// Between asking a CLI to stop and killing it.
    pub grace: Duration,
    /// What a CLI gets to exit by itself after its last event.
    pub linger: Duration,
    pub secrets: Secrets,
    /// The LLM that comes with the gateway, for the built-in agent where no other is set.
    pub embedded_llm: Option<Arc<Api>>,
}

impl Settings {
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }
}

/// Why a turn did not even start.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    #[error("Unknown model")]
    UnknownModel {
        near: Vec<String>,
        /// The names there are.
        models: Vec<String>,
        /// Set where the name is that of a CLI that the gateway could run.
        cli: Option<KnownCli>,
    },
    /// The gateway itself is full: all slots busy and the queue too long.
    #[error("{message}")]
    Busy { message: String, retry_after: Duration },
    /// Whoever asks has had their share for now.
    #[error("{message}")]
    Limited { message: String, retry_after: Duration },
    /// The circuits of all that could answer are open.
    #[error("{message}")]
    Unavailable {
        message: String,
        retry_after: Duration,
        /// The failure that opened one of them.
        last: Option<Failure>,
    },
    /// The state folder takes no writes: what was promised of the run could not be kept.
    #[error("the state folder cannot be written: {reason}")]
    Storage { reason: String, retry_after: Duration },
    #[error("{failure}")]
    Failed {
        failure: Failure,
        /// The run it was to be, and what was tried in it.
        run: String,
        attempts: Vec<Attempted>,
    },
}

/// A CLI that could be a model and is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCli {
    pub why: String,
    pub remedy: String,
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> Self {
        Self::Failed { failure, run: String::new(), attempts: Vec::new() }
    }
}

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    /// What our processes are marked with.
    pub(crate) mark: String,
    _alive: Alive,
    models: ArcSwap<Models>,
    pub(crate) keepers: Keepers,
    pub(crate) upstream: Upstream,
    pub(crate) gate: Gate,
    pub(crate) circuits: Arc<Circuits>,
    pub(crate) retries: Retries,
    pub(crate) examined: health::Memory,
    pub(crate) drift: Drift,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) archive: Archive,
    pub(crate) storage: Storage,
    pub(crate) worktrees: Worktrees,
    pub(crate) runs: Arc<Registry>,
    pub(crate) sweeping: Sweeping,
    /// Held while it is decided whether a request is the first under its key.
    pub(crate) claiming: tokio::sync::Mutex<()>,
    pub(crate) warm: warm::Pool,
    pub(crate) compiling: Compiling,
    /// What goes on after a run was let go of.
    pub(crate) tracker: TaskTracker,
    /// Cancelled when the gateway is to end: saves are cut short.
    pub(crate) draining: CancellationToken,
    /// Cancelled when runs are no longer waited for: no more worktrees are made.
    pub(crate) stopping: CancellationToken,
}

impl Engine {
    /// Needs a tokio runtime.
    pub fn new(settings: Settings, models: Models, keepers: Keepers) -> Self {
        let git = Git::new(keepers.clone(), &settings.env, settings.git_timeout);
        let mark = Owner::this_process().mark();
        let inner = Inner {
            _alive: Alive::new(&settings.state, &mark),
            gate: Gate::new(settings.caps.clone()),
            circuits: Arc::default(),
            retries: Retries::default(),
            examined: health::Memory::default(),
            drift: Drift::default(),
            worktrees: Worktrees::new(git, settings.worktrees.clone(), &settings.state),
            sessions: Arc::new(Sessions::new(&settings.state)),
            archive: Archive::default(),
            storage: Storage::default(),
            runs: Arc::default(),
            sweeping: Sweeping::default(),
            claiming: tokio::sync::Mutex::default(),
            warm: warm::Pool::new(&settings.state),
            compiling: Compiling::default(),
            models: ArcSwap::from_pointee(models),
            tracker: TaskTracker::new(),
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
            mark,
            keepers,
            upstream: Upstream::new(),
            settings,
        };
        Self { inner: Arc::new(inner) }
    }

    /// From now on sessions and turns are kept there. Without it, sessions are known until this process ends.
    pub fn remember_in(&self, store: Store) {
        self.inner.sessions.book.mask(self.inner.settings.secrets.clone());
        let writer = self.inner.archive.open(&store);
        self.inner.sessions.book.keep_in(store, writer);
    }

    pub fn models(&self) -> Arc<Models> {
        self.inner.models.load_full()
    }

    /// Puts other models in their place; runs on their way keep theirs.
    pub fn replace_models(&self, models: Models) {
        let known: BTreeSet<String> = models.all().map(|model| circuit_of(model)).collect();
        self.inner.circuits.keep(|name| known.contains(name));
        self.inner.models.store(Arc::new(models));
        self.inner.warm.clear();
        self.inner.worktrees.unfix_spares();
        self.warm_up();
    }

    /// From now on CLIs are kept ready for their next turns, within these bounds. Without it, none are.
    pub fn keep_warm(&self, budget: Budget) {
        self.inner.warm.open(budget);
        self.inner.worktrees.keep_spares(budget.lines);
        self.warm_up();
    }

    /// Nobody is to be made ready for any more: what waits for turns to come may go.
    pub fn retire(&self) {
        self.inner.draining.cancel();
        self.inner.worktrees.retire_spares();
        self.inner.compiling.closing.cancel();
    }

    /// Makes ready what models want from the start. What cannot be is told when it is asked for.
    fn warm_up(&self) {
        let (models, turn, inner) = (self.models(), Turn::default(), &self.inner);
        for model in models.all().filter(|model| inner.keeps_lines() && model.warm.is_some_and(|number| number > 0)) {
            if model.worktree {
                // A worktree, that is; a process of its own it cannot have before it has a folder.
                inner.want_trees(model.repo.clone(), model.warm.unwrap_or_default() as usize);
                continue;
            }
            let Some(provider) = model.backend.program() else { continue };
            let (settings, owner) = (&inner.settings, inner.mark.as_str());
            let launch = Launch { settings, turn: &turn, model, provider, models: &models, run: "", owner };
            let boot = launch.prompt().and_then(|prompt| launch.boot(&prompt, launch.program()?, model.repo.clone()));
            match boot {
                Ok(Some(boot)) => {
                    let boot = Arc::new(boot);
                    inner.want_lines(&boot, Wish::of(model, &boot));
                }
                Ok(None) => tracing::warn!(model = model.name, "warm: no process of this model can be kept ready"),
                Err(failure) => tracing::warn!(model = model.name, "warm: {failure}"),
            }
        }
    }

    /// Where worktrees are made.
    pub fn worktrees(&self) -> &Path {
        &self.inner.settings.worktrees
    }

    pub fn secrets(&self) -> &Secrets {
        &self.inner.settings.secrets
    }

    /// How a model would run now; none for one that is a service.
    pub fn plan(&self, model: &Model) -> Option<Result<Plan, Failure>> {
        let provider = model.backend.program()?;
        let (turn, models) = (Turn::default(), self.models());
        let settings = &self.inner.settings;
        let launch =
            Launch { settings, turn: &turn, model, provider, models: &models, run: "<run>", owner: "<gateway>" };
        Some(launch.plan())
    }

    /// What a run of the model could write; none for one that is a service.
    pub fn bounds(&self, model: &Model) -> Option<Result<Bounds, Failure>> {
        self.inner.bounds(model, &self.models())
    }

    /// Starts a turn: waits for a slot, makes its workspace, starts its CLI; and if that fails, whoever may take its place.
    pub async fn start(&self, mut turn: Turn) -> Result<Run, StartError> {
        let ready = self.reserve(self.ready(&turn)?, &turn).await?;
        match ready.on_disconnect(&turn) {
            OnDisconnect::Cancel => {
                let run = turn.run.take().unwrap_or_else(runs::name);
                let presence = self.inner.runs.begin(&run, &turn.owner, None);
                self.begin(ready, turn, presence).await.map(Run::pulled)
            }
            OnDisconnect::Detach => self.start_detached(ready.durably(), turn).await,
        }
    }

    /// Who may answer a turn.
    pub(crate) fn ready(&self, turn: &Turn) -> Result<Ready, StartError> {
        let models = self.models();
        let Some(candidates) = models.candidates(&turn.model) else {
            return Err(self.unknown_model(&models, &turn.model));
        };
        let candidates = able(turn, candidates)?;
        self.inner.gate.admit(&turn.owner, &turn.model)?;
        Ok(Ready { candidates, models, reserved: None, recording: Recording::Queued })
    }

    /// Takes what a run needs before it is promised: a disk that takes its record, and a slot or a place in the queue.
    pub(crate) async fn reserve(&self, ready: Ready, turn: &Turn) -> Result<Ready, StartError> {
        self.inner.check_storage(turn.surface).await?;
        let first = ready.candidates.first().map_or(turn.model.as_str(), |first| first.model.name.as_str());
        let reserved = self.inner.gate.reserve(&turn.owner, first)?;
        Ok(Ready { reserved: Some(reserved), ..ready })
    }

    /// Says what there is instead, and of a CLI that is known why it is not among that.
    fn unknown_model(&self, models: &Models, name: &str) -> StartError {
        let names = models.names();
        let near = near(name, names.iter().map(String::as_str));
        let cli = models.known_cli(name, self.inner.settings.variable("PATH"));
        StartError::UnknownModel { near, models: names, cli }
    }

    /// Begins the run that is registered there. Whoever stops it there stops it here.
    pub(crate) async fn begin(&self, ready: Ready, turn: Turn, presence: Arc<Presence>) -> Result<Course, StartError> {
        let live = Arc::clone(&presence);
        tokio::select! {
            biased;
            () = live.stopped() => Err(runs::withdrawn(&live.id)),
            begun = self.climb(ready, turn, presence) => begun.map_err(|error| error.of_run(&live.id)),
        }
    }

    async fn climb(&self, ready: Ready, turn: Turn, presence: Arc<Presence>) -> Result<Course, StartError> {
        let (inner, run) = (&self.inner, presence.id.clone());
        let first = ready.candidates.first().map(|first| &first.model);
        let place = first.map(|model| model.repo.display().to_string());
        let provider = first.map(|model| model.backend.name().to_owned());
        let begun = Begun {
            detached: presence.is_detached(),
            presence,
            session: turn.session.as_ref(),
            place: place.unwrap_or_default(),
            provider: provider.unwrap_or_default(),
            turn: &turn,
            gateway: &inner.mark,
        };
        let log = Log::new(&inner.settings.state, &run, inner.settings.secrets.clone());
        let secrets = &inner.settings.secrets;
        let recorder = match ready.recording {
            Recording::Queued => inner.archive.record(begun, log, secrets),
            Recording::Durable => {
                let recorded = inner.archive.record_surely(begun, log, secrets).await;
                recorded.map_err(|error| inner.unwritable(error))?
            }
        };
        let reserved = Mutex::new(ready.reserved);
        let resolver = Resolver { sessions: &inner.sessions, gate: &inner.gate, turn: &turn, reserved };
        let resolved = match resolver.resolve(ready.candidates).await {
            Ok(resolved) => resolved,
            Err(error) => {
                let failure = error.as_failure();
                inner.tracker.spawn(recorder.end(End { provider: "", session: None, result: Err(&failure) }));
                return Err(error);
            }
        };
        let reserved = resolver.reserved.into_inner().unwrap_or_else(PoisonError::into_inner);
        let named = turn.session.is_some();
        let ladder = Ladder::new(Arc::clone(inner), ready.models, run, turn, resolved, reserved);
        if let Some(thread) = ladder.thread.as_ref().filter(|thread| thread.resumes() && !named) {
            recorder.goes_on(thread.id(), &ladder.turn);
        }
        Course::start(ladder, recorder).await
    }

    /// How many turns wait to be started.
    pub fn waiting(&self) -> usize {
        self.inner.gate.waiting()
    }

    /// How many requests an owner may still make in this minute; none where that is not limited.
    pub fn allowance(&self, owner: &turn::Owner) -> Option<Allowance> {
        self.inner.gate.allowance(owner)
    }

    /// The order in which a turn for this name would be tried now, and why; none for a name that means nothing.
    pub fn explain(&self, name: &str) -> Option<Explanation> {
        explain::explain(&self.inner, &self.models(), name)
    }

    /// How each provider is: whether it is there, what it says of itself, and on demand, whether it answers.
    pub async fn health(&self, depth: Depth) -> Report {
        health::of_all(&self.inner, &self.models(), depth).await
    }

    /// Ends everything and waits for it: no run, no process, no worktree is left.
    pub async fn shutdown(&self) {
        self.inner.runs.stop_driven();
        self.retire();
        self.inner.stopping.cancel();
        self.inner.warm.close();
        self.inner.tracker.close();
        self.inner.tracker.wait().await;
        self.inner.archive.close().await;
        self.inner.keepers.shutdown().await;
        // Whatever is wrong with the file next time: nothing that waits beside it is written over it.
        if let Some(store) = self.inner.archive.store() {
            store.close().await;
        }
    }
}

/// A turn's candidates, of whom one at least can do what it asks for.
pub(crate) struct Ready {
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

impl Ready {
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

impl StartError {
    /// The same, of this run.
    fn of_run(self, id: &str) -> Self {
        match self {
            Self::Failed { failure, run, attempts } if run.is_empty() => {
                Self::Failed { failure, run: id.to_owned(), attempts }
            }
            Self::Failed { .. }
            | Self::UnknownModel { .. }
            | Self::Busy { .. }
            | Self::Limited { .. }
            | Self::Unavailable { .. }
            | Self::Storage { .. } => self,
        }
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
