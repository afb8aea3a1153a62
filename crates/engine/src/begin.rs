//! The beginning of one attempt: a slot, a workspace, and a program that is started or a service that is called.

use std::path::Path;
use std::sync::Arc;

use trunkline_core::api::Api;
use trunkline_core::event::SessionId;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::{Backend, Model};
use trunkline_core::prompt::{self, Prompt};
use trunkline_core::provider::Provider;
use trunkline_core::turn::Turn;
use trunkline_process::{Running, SpawnError, Spec};
use trunkline_upstream::{Call, Patience};
use trunkline_wire::upstream;

use crate::agent_file;
use crate::attempt::{Attempt, Live};
use crate::belongings::Belongings;
use crate::carrier::Carrier;
use crate::engine::Inner;
use crate::gate::Permit;
use crate::launch::Launch;
use crate::models::Models;
use crate::plan::bounded;
use crate::router::Policy;
use crate::scratch::Scratch;
use crate::session::{self, Place};
use crate::warm::{Kept, Taken, Wish};
use crate::worktree::{After, Wanted};

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
        // Before git runs for a model that must be confined.
        launch.bounds()?;
        if model.worktree {
            belongings = self.with_worktree(belongings, &attempt).await?;
        }
        let cwd = belongings.cwd(model);
        let up_to_date = turn.session.as_ref().is_none_or(|session| self.warm.begin_in(&provider.name, session));
        let carrier =
            if self.keeps_lines() { self.on_a_line(&launch, &prompt, &program, &cwd, up_to_date).await? } else { None };
        let spec = launch.spec(&prompt, program.clone(), &mut belongings)?;
        let generate = launch.generating(&spec, &prompt)?.map(Box::new);
        let (running, carrier) = match carrier {
            Some((running, carrier)) => (running, Some(Carrier { cold: Some(spec), ..carrier })),
            None => (self.start_process(spec, provider).await?, None),
        };
        tracing::debug!(run = id, model = model.name, pid = running.pid(), warm = carrier.is_some(), "started");
        belongings.started = true;
        self.compile_ahead(&launch, &program);
        Ok(Attempt::new(Live {
            running,
            carrier,
            decoder: provider.decoder(model.normalize, launch.form()),
            provider: Arc::clone(provider),
            model: Arc::clone(model),
            prompt: prompt.text,
            session: turn.session.clone(),
            belongings,
            standby: attempt.standby,
            last_words: None,
            shown: false,
            generate,
        }))
    }

    /// Tells the turn to a process that is up already, if there is one for it.
    async fn on_a_line(
        &self,
        launch: &Launch<'_>,
        prompt: &Prompt,
        program: &Path,
        cwd: &Path,
        up_to_date: bool,
    ) -> Result<Option<(Running, Carrier)>, Failure> {
        let (session, linger) = (launch.turn.session.as_ref(), self.settings.linger);
        let boot = launch.boot(prompt, program.to_owned(), cwd.to_owned())?.map(Arc::new);
        if let Some(session) = session
            && (boot.is_none() || !up_to_date)
        {
            self.warm.part_from(&launch.provider.name, session, linger).await;
        }
        let (Some(boot), Some(live)) = (boot, &launch.provider.live) else { return Ok(None) };
        let taken = self.warm.take(&boot, Wish::of(launch.model, &boot), session, linger).await;
        let Some(Taken { kept, fresh }) = taken else { return Ok(None) };
        let Kept { mut running, mut line, boot, stamps, scratch } = kept;
        let session = session.filter(|_| fresh).map(|session| session.0.as_str());
        let Some(words) = line.say(&live.escape.text(&prompt.text), session) else { return Ok(None) };
        running.limit(launch.model.limits);
        running.write(&words);
        let answers_by = Carrier::answers_by(launch.model.limits.startup);
        Ok(Some((running, Carrier { line, boot, stamps, scratch, cold: None, answers_by })))
    }

    pub(crate) async fn start_process(&self, spec: Spec, provider: &Provider) -> Result<Running, NotBegun> {
        self.keepers.spawn_spooled(spec).await.map_err(|error| could_not_start(error, &provider.name))
    }

    /// Adds a worktree. Dropping the future kills git, and a task of the engine removes what it has made so far.
    pub(crate) async fn with_worktree(
        self: &Arc<Self>,
        mut belongings: Belongings,
        attempt: &Try<'_>,
    ) -> Result<Belongings, Failure> {
        let Try { model, place, again, .. } = attempt;
        let after =
            After { keep: model.keep_worktree, log_helpers: model.log_helpers, forbid_helpers: model.forbid_helpers };
        let engine = Arc::clone(self);
        let wanted = Wanted {
            repo: model.repo.clone(),
            run: attempt.id.to_owned(),
            session: attempt.session.as_ref().map(|(session, _)| session.clone()),
            place: place.clone(),
            again: *again,
            spare: model.warm != Some(0),
        };
        let cancelled = self.stopping.child_token();
        let _on_drop = cancelled.clone().drop_guard();
        let making = self.tracker.spawn(async move {
            let worktree = engine.worktrees.add(wanted, &cancelled).await?;
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
        let turn = bounded(turn, model);
        let body = upstream::request(&turn, standing.as_deref(), model.upstream.as_deref());
        let asked: Vec<String> = turn.messages.iter().map(prompt::said).collect();
        Ok(self.upstream.call(api, body, &[], Patience::in_all(model.limits.total), asked.join("\n")))
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
