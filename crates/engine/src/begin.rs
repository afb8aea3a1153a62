//! The beginning of one attempt: a slot, a workspace, and a program that is started or a service that is called.

use std::sync::Arc;

use trunkline_core::api::Api;
use trunkline_core::event::SessionId;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::{Backend, Model};
use trunkline_core::parse::{Context, Decoder};
use trunkline_core::prompt;
use trunkline_core::provider::{Form, Provider};
use trunkline_core::turn::Turn;
use trunkline_process::SpawnError;
use trunkline_upstream::{Call, Patience};
use trunkline_wire::upstream;

use crate::agent_file;
use crate::attempt::{Attempt, Live};
use crate::belongings::Belongings;
use crate::engine::Inner;
use crate::gate::Permit;
use crate::launch::Launch;
use crate::models::Models;
use crate::router::Policy;
use crate::scratch::Scratch;
use crate::session::{self, Place};
use crate::worktree::After;

/// One try of a turn.
pub(crate) struct Try<'a> {
    pub(crate) turn: &'a Turn,
    pub(crate) model: &'a Arc<Model>,
    pub(crate) models: &'a Models,
    /// Names its workspace and its files.
    pub(crate) id: &'a str,
    /// The run it is a try of.
    pub(crate) run: &'a str,
    /// The session, and the right to speak in it, held until nothing of the try is left.
    pub(crate) session: Option<(SessionId, Arc<session::Turn>)>,
    /// Where the session left off.
    pub(crate) place: Option<Place>,
    /// Another of the same turn went before.
    pub(crate) again: bool,
    /// Set when another may take over: when it does.
    pub(crate) standby: Option<Arc<Policy>>,
}

impl Inner {
    /// Makes the workspace and starts what answers.
    pub(crate) async fn begin(self: &Arc<Self>, attempt: Try<'_>, permit: Permit) -> Result<Attempt, NotBegun> {
        let (scratch, session) = (Scratch::new(&self.settings.state, attempt.id), attempt.session.clone());
        let mut belongings = Belongings::new(Arc::clone(self), permit, session, scratch, attempt.run);
        let Try { turn, model, models, id, .. } = attempt;
        let provider = match &model.backend {
            Backend::Program(provider) => provider,
            Backend::Api(api) => return Ok(Attempt::calling(self.call(api, turn, model)?, belongings)),
            Backend::Agent(llm) => return Ok(Attempt::working(self.begin_agent(&attempt, llm, belongings).await?)),
        };
        let launch = Launch { settings: &self.settings, turn, model, provider, models, run: id, owner: &self.mark };
        let program = launch.program()?;
        let prompt = launch.prompt()?;
        if model.worktree {
            belongings = self.with_worktree(belongings, &attempt).await?;
        }
        let spec = launch.spec(&prompt, program, &mut belongings)?;
        let running = self.keepers.spawn(spec).await.map_err(|error| could_not_start(error, &provider.name))?;
        tracing::debug!(run = id, model = model.name, pid = running.pid(), "started");
        belongings.started = true;
        let decoder = Decoder::new(provider.format, decoding(provider, model, launch.form()));
        Ok(Attempt::new(Live {
            running,
            decoder,
            provider: Arc::clone(provider),
            model: Arc::clone(model),
            prompt: prompt.text,
            session: turn.session.clone(),
            belongings,
            standby: attempt.standby,
            last_words: None,
        }))
    }

    /// Adds a worktree. Git is not stopped in the middle: whoever gives up waiting leaves a whole one behind, which then
    /// goes the way of all belongings.
    pub(crate) async fn with_worktree(
        self: &Arc<Self>,
        mut belongings: Belongings,
        attempt: &Try<'_>,
    ) -> Result<Belongings, Failure> {
        let Try { model, place, again, .. } = attempt;
        let after = After { keep: model.keep_worktree, log_helpers: model.log_helpers };
        let (engine, repo, id) = (Arc::clone(self), model.repo.clone(), attempt.id.to_owned());
        let (place, again) = (place.clone(), *again);
        let session = attempt.session.as_ref().map(|(session, _)| session.clone());
        let making = self.tracker.spawn(async move {
            let worktree = engine.worktrees.add(&repo, &id, session, place, again).await?;
            belongings.work_in(worktree, after);
            Ok(belongings)
        });
        making.await.unwrap_or_else(|error| Err(Failure::new(Category::Server, format!("no worktree: {error}"))))
    }
}

impl Inner {
    /// The request of a turn to a service.
    fn call(&self, api: &Api, turn: &Turn, model: &Model) -> Result<Call, Failure> {
        let file = match &model.agent_file {
            Some(name) => agent_file::read(&model.repo, name)?,
            None => None,
        };
        let standing: Vec<String> = file.into_iter().chain(model.system_prompt.clone()).collect();
        let standing = (!standing.is_empty()).then(|| standing.join("\n\n"));
        let body = upstream::request(turn, standing.as_deref(), model.upstream.as_deref());
        let asked: Vec<String> = turn.messages.iter().map(prompt::said).collect();
        Ok(self.upstream.call(api, body, &[], Patience::in_all(model.limits.total), asked.join("\n")))
    }
}

fn decoding(provider: &Provider, model: &Model, form: Form) -> Context {
    Context {
        program: provider.name.clone(),
        rules: provider.failures.clone(),
        noise: provider.noise.clone(),
        normalize: model.normalize,
        form,
    }
}

/// Why an attempt did not begin.
pub(crate) enum NotBegun {
    Failed(Failure),
    /// The machine has no more processes, files or memory for it: nothing that its provider is to blame for.
    Exhausted(String),
}

impl From<Failure> for NotBegun {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn could_not_start(error: SpawnError, provider: &str) -> NotBegun {
    let category = match &error {
        SpawnError::Exhausted(source) => {
            tracing::error!(%source, "no process can be started");
            return NotBegun::Exhausted(format!("this machine cannot start another process now: {source}"));
        }
        SpawnError::NotFound { .. } => Category::NotFound,
        SpawnError::NotExecutable { .. } | SpawnError::BadDirectory { .. } => Category::Configuration,
        SpawnError::TooLong { .. } => Category::Validation,
        SpawnError::Unconfined { .. } | SpawnError::Other { .. } | SpawnError::Keeper(_) | SpawnError::ShutDown => {
            Category::Server
        }
    };
    let because = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    let failure = Failure::new(category, format!("cannot start {provider}: {error}{because}"));
    failure.hint("try: trunkline doctor").into()
}
