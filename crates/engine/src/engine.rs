//! The one door: a turn goes in, a run comes out.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_util::task::TaskTracker;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::Model;
use trunkline_core::near::near;
use trunkline_core::parse::{Context, Decoder};
use trunkline_core::secret::Secrets;
use trunkline_core::turn::Turn;
use trunkline_process::{Keepers, SpawnError};

use crate::environment::OWNER;
use crate::gate::{Caps, Gate};
use crate::git::Git;
use crate::launch::Launch;
use crate::owner::Owner;
use crate::plan::Plan;
use crate::run::{Belongings, Live, Run};
use crate::scratch::Scratch;
use crate::session::Sessions;
use crate::worktree::{After, Worktrees};

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
    /// Between asking a CLI to stop and killing it.
    pub grace: Duration,
    /// What a CLI gets to exit by itself after its last event.
    pub linger: Duration,
    pub secrets: Secrets,
}

impl Settings {
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }
}

/// The models there are, in the order of their file.
#[derive(Debug, Clone, Default)]
pub struct Models {
    named: Vec<Arc<Model>>,
    /// Answers for every name that is not there.
    default: Option<Arc<Model>>,
}

/// Why a turn did not even start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("Unknown model")]
    UnknownModel { near: Vec<String> },
    /// The gateway itself is full: all slots busy and the queue too long.
    #[error("{message}")]
    Busy { message: String, retry_after: Duration },
    #[error(transparent)]
    Failed(#[from] Failure),
}

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    /// What our processes are marked with.
    mark: String,
    models: ArcSwap<Models>,
    keepers: Keepers,
    gate: Gate,
    pub(crate) sessions: Sessions,
    pub(crate) worktrees: Worktrees,
    /// What goes on after a run was let go of.
    pub(crate) tracker: TaskTracker,
}

impl Models {
    pub fn new(models: impl IntoIterator<Item = Model>) -> Self {
        Self { named: models.into_iter().map(Arc::new).collect(), default: None }
    }

    /// The same, with one more that answers for every other name too.
    #[must_use]
    pub fn with_default(mut self, model: Model) -> Self {
        let model = Arc::new(model);
        if self.named.iter().all(|known| known.name != model.name) {
            self.named.push(Arc::clone(&model));
        }
        self.default = Some(model);
        self
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Model>> {
        self.named.iter().find(|model| model.name == name).or(self.default.as_ref())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.named.iter()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|model| model.name.as_str())
    }
}

impl Engine {
    /// Needs a tokio runtime.
    pub fn new(settings: Settings, models: Models, keepers: Keepers) -> Self {
        let git = Git::new(keepers.clone(), &settings.env);
        let inner = Inner {
            gate: Gate::new(settings.caps),
            worktrees: Worktrees::new(git, settings.worktrees.clone(), &settings.state),
            sessions: Sessions::new(&settings.state),
            models: ArcSwap::from_pointee(models),
            tracker: TaskTracker::new(),
            mark: Owner::this_process().mark(),
            keepers,
            settings,
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn models(&self) -> Arc<Models> {
        self.inner.models.load_full()
    }

    /// Puts other models in their place; runs on their way keep theirs.
    pub fn replace_models(&self, models: Models) {
        self.inner.models.store(Arc::new(models));
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

    /// How a model would run now.
    pub fn plan(&self, model: &Model) -> Result<Plan, Failure> {
        let (turn, models) = (Turn::default(), self.models());
        Launch { settings: &self.inner.settings, turn: &turn, model, models: &models, run: "<run>", owner: "<gateway>" }
            .plan()
    }

    /// Starts a turn: waits for a slot, makes its workspace, starts its CLI.
    pub async fn start(&self, turn: Turn) -> Result<Run, StartError> {
        let models = self.models();
        let Some(model) = models.get(&turn.model) else {
            return Err(StartError::UnknownModel { near: near(&turn.model, models.names()) });
        };
        check(&turn, model)?;
        self.inner.begin(turn, Arc::clone(model), &models, Arc::clone(&self.inner)).await
    }

    /// Ends everything and waits for it: no run, no process, no worktree is left.
    pub async fn shutdown(&self) {
        self.inner.tracker.close();
        self.inner.tracker.wait().await;
        self.inner.keepers.shutdown().await;
    }
}

/// Refuses what the model's CLI cannot do, before anything is started for it.
fn check(turn: &Turn, model: &Model) -> Result<(), StartError> {
    let provider = &model.provider;
    if let Some(session) = &turn.session {
        provider.check_session(&session.0)?;
    }
    if turn.images().next().is_some() && !provider.takes("image") {
        let message = format!("{} takes no pictures on this path; codex and opencode do", provider.name);
        return Err(Failure::new(Category::Validation, message).into());
    }
    Ok(())
}

impl Inner {
    async fn begin(
        &self,
        turn: Turn,
        model: Arc<Model>,
        models: &Models,
        engine: Arc<Self>,
    ) -> Result<Run, StartError> {
        // The session first: who waits for it must not hold a slot that others could use.
        let session_turn = match &turn.session {
            Some(session) => Some(self.gate.in_time(self.sessions.enter(session)).await?),
            None => None,
        };
        let permit = self.gate.enter(&model.name).await?;
        let id = uuid::Uuid::now_v7().to_string();
        let launch =
            Launch { settings: &self.settings, turn: &turn, model: &model, models, run: &id, owner: &self.mark };
        let program = launch.program()?;
        let prompt = launch.prompt()?;
        let mut belongings = Belongings::new(engine, permit, session_turn, Scratch::new(&self.settings.state, &id));
        if model.worktree {
            let after = After { keep: model.keep_worktree, log_helpers: model.log_helpers };
            let place = turn.session.as_ref().and_then(|session| self.sessions.places.of(session));
            belongings.worktree = Some((self.worktrees.add(&model.repo, &id, place).await?, after));
        }
        let cwd = belongings.worktree.as_ref().map_or(model.repo.as_path(), |(worktree, _)| &worktree.cwd).to_owned();
        let spec = launch.spec(&prompt, program, cwd, &mut belongings.scratch)?;
        let running = self.keepers.spawn(spec).await.map_err(|error| could_not_start(&error, &model))?;
        tracing::debug!(run = id, model = model.name, pid = running.pid(), "started");
        let decoder = Decoder::new(model.provider.format, decoding(&model));
        Ok(Run::new(
            id,
            Live { running, decoder, model, prompt: prompt.text, session: turn.session, belongings, last_words: None },
        ))
    }
}

fn decoding(model: &Model) -> Context {
    Context {
        program: model.provider.name.clone(),
        rules: model.provider.failures.clone(),
        noise: model.provider.noise.clone(),
        normalize: model.normalize,
    }
}

fn could_not_start(error: &SpawnError, model: &Model) -> StartError {
    let category = match error {
        SpawnError::NotFound { .. } => Category::NotFound,
        SpawnError::NotExecutable { .. } | SpawnError::BadDirectory { .. } => Category::Configuration,
        SpawnError::TooLong { .. } => Category::Validation,
        SpawnError::Other { .. } | SpawnError::Keeper(_) | SpawnError::ShutDown => Category::Server,
    };
    let because = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    Failure::new(category, format!("cannot start {}: {error}{because}", model.provider.name))
        .hint("try: trunkline doctor")
        .into()
}
