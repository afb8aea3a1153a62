//! The one door: a turn goes in, a run comes out.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_util::task::TaskTracker;
use trunkline_core::api::Api;
use trunkline_core::event::Attempted;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::{Model, Sandbox};
use trunkline_core::near::near;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::Turn;
use trunkline_process::Keepers;
use trunkline_store::Store;
use trunkline_upstream::Upstream;

use crate::archive::{Archive, Begun};
use crate::drift::Drift;
use crate::environment::OWNER;
use crate::explain::{self, Explanation};
use crate::gate::{Caps, Gate};
use crate::git::Git;
use crate::health::{self, Depth, Report};
use crate::ladder::Ladder;
use crate::launch::Launch;
use crate::models::Models;
use crate::owner::Owner;
use crate::plan::Plan;
use crate::router::{Candidate, Circuits, circuit_of};
use crate::run::Run;
use crate::sandbox::Bounds;
use crate::scratch::Scratch;
use crate::session::resolve::Resolver;
use crate::session::{Sessions, Thread};
use crate::worktree::Worktrees;

/// Everything that can run, and the limits under which it does. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
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
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("Unknown model")]
    UnknownModel { near: Vec<String> },
    /// The gateway itself is full: all slots busy and the queue too long.
    #[error("{message}")]
    Busy { message: String, retry_after: Duration },
    /// Everyone who could answer has failed too often of late.
    #[error("{message}")]
    Unavailable { message: String, retry_after: Duration },
    #[error("{failure}")]
    Failed {
        failure: Failure,
        /// The run it was to be, and what was tried in it.
        run: String,
        attempts: Vec<Attempted>,
    },
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
    models: ArcSwap<Models>,
    pub(crate) keepers: Keepers,
    pub(crate) upstream: Upstream,
    pub(crate) gate: Gate,
    pub(crate) circuits: Arc<Circuits>,
    pub(crate) examined: health::Memory,
    pub(crate) drift: Drift,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) archive: Archive,
    pub(crate) worktrees: Worktrees,
    /// What goes on after a run was let go of.
    pub(crate) tracker: TaskTracker,
}

impl Engine {
    /// Needs a tokio runtime.
    pub fn new(settings: Settings, models: Models, keepers: Keepers) -> Self {
        let git = Git::new(keepers.clone(), &settings.env);
        let inner = Inner {
            gate: Gate::new(settings.caps),
            circuits: Arc::default(),
            examined: health::Memory::default(),
            drift: Drift::default(),
            worktrees: Worktrees::new(git, settings.worktrees.clone(), &settings.state),
            sessions: Arc::new(Sessions::new(&settings.state)),
            archive: Archive::default(),
            models: ArcSwap::from_pointee(models),
            tracker: TaskTracker::new(),
            mark: Owner::this_process().mark(),
            keepers,
            upstream: Upstream::new(),
            settings,
        };
        Self { inner: Arc::new(inner) }
    }

    /// From now on sessions and turns are kept there. Without it, sessions are known until this process ends.
    pub fn remember_in(&self, store: Store) {
        self.inner.sessions.book.mask(self.inner.settings.secrets.clone());
        self.inner.archive.open(&store);
        self.inner.sessions.book.keep_in(store);
    }

    pub fn models(&self) -> Arc<Models> {
        self.inner.models.load_full()
    }

    /// Puts other models in their place; runs on their way keep theirs.
    pub fn replace_models(&self, models: Models) {
        let known: BTreeSet<String> = models.all().map(|model| circuit_of(model)).collect();
        self.inner.circuits.keep(|name| known.contains(name));
        self.inner.models.store(Arc::new(models));
    }

    /// Where worktrees are made.
    pub fn worktrees(&self) -> &Path {
        &self.inner.settings.worktrees
    }

    pub fn secrets(&self) -> &Secrets {
        &self.inner.settings.secrets
    }

    /// Takes care of what a gateway that died left behind.
    pub async fn sweep(&self) {
        let strays = trunkline_process::end_marked(OWNER, Owner::is_dead);
        if strays > 0 {
            tracing::warn!(strays, "ended processes of a gateway that died together with its keepers");
        }
        Scratch::sweep(&self.inner.settings.state);
        self.inner.sessions.places.sweep();
        self.inner.worktrees.sweep().await;
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
    pub async fn start(&self, turn: Turn) -> Result<Run, StartError> {
        let models = self.models();
        let Some(candidates) = models.candidates(&turn.model) else {
            let names = models.names();
            return Err(StartError::UnknownModel { near: near(&turn.model, names.iter().map(String::as_str)) });
        };
        let candidates = able(&turn, candidates)?;
        let inner = &self.inner;
        let resolver = Resolver { sessions: &inner.sessions, gate: &inner.gate, turn: &turn };
        let resolved = resolver.resolve(candidates).await?;
        let place = resolved.candidates.first().map(|first| first.model.repo.display().to_string());
        let ladder = Ladder::new(Arc::clone(inner), models, turn, resolved);
        let session = ladder.thread.as_ref().filter(|thread| thread.resumes()).map(Thread::id);
        let begun = Begun { run: &ladder.run, session, place: place.unwrap_or_default(), turn: &ladder.turn };
        let recorder = inner.archive.record(begun, &inner.settings.secrets);
        Run::start(ladder, recorder).await
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
        self.inner.tracker.close();
        self.inner.tracker.wait().await;
        self.inner.archive.close().await;
        self.inner.keepers.shutdown().await;
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
