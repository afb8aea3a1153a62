//! The built-in agent: what it is given to work with, and how it ends.

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use trunkline_agent::record::Records;
use trunkline_agent::tools::{Shell, Toolbox};
use trunkline_agent::transcript::Transcript;
use trunkline_agent::{Agent, SYSTEM_PROMPT, Work};
use trunkline_core::api::{Api, Llm};
use trunkline_core::event::{Event, Receipt};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::limits::{Limit, Overrun};
use trunkline_core::model::{AGENT, Backend, Model};
use trunkline_core::phase::Phase;
use trunkline_core::turn::Turn;

use crate::agent_file;
use crate::begin::Try;
use crate::belongings::Belongings;
use crate::engine::Inner;
use crate::environment::{Child, of_child};
use crate::launch::Launch;
use crate::models::Models;
use crate::sandbox::{self, Bounds, Scene};

/// How long a message of the embedded LLM may be: it says what is in its script.
const EMBEDDED_TOKENS: u64 = 4096;

/// No turn takes longer, whatever its limit: the clock would overflow.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// The agent at work, and what it holds.
pub(crate) struct AtWork {
    work: Work,
    total: Duration,
    deadline: Instant,
    belongings: Belongings,
}

impl Inner {
    /// Puts the agent to work.
    pub(crate) async fn begin_agent(
        self: &Arc<Self>,
        attempt: &Try<'_>,
        llm: &Llm,
        mut belongings: Belongings,
    ) -> Result<AtWork, Failure> {
        let (turn, model) = (attempt.turn, attempt.model);
        agent_file::check_repo(&model.repo)?;
        let instructions = match &model.agent_file {
            Some(name) => agent_file::read(&model.repo, name)?,
            None => None,
        };
        let (api, max_tokens) = self.llm(llm)?;
        let records = Records::new(self.settings.state.join(AGENT));
        let (record, before) = match &turn.session {
            Some(session) => records.resume(session, &model.repo, attempt.run)?,
            None => (records.begin(&model.repo, attempt.run), Transcript::default()),
        };
        if model.worktree {
            // Before git runs for a model that must be confined.
            if let Some(bounds) = self.bounds(model, attempt.models) {
                bounds?;
            }
            belongings = self.with_worktree(belongings, attempt).await?;
            self.refill_trees();
        }
        let cwd = belongings.cwd(model);
        if !cwd.is_dir() {
            let message = format!("{} is not in the last commit of its repository", model.repo.display());
            return Err(Failure::new(Category::Configuration, message).hint("commit it, or do without a worktree"));
        }
        let env = self.shell_environment(attempt.models, model, attempt.id, &cwd);
        let confinement = self.agents_scene(model, &env, belongings.workspace(model)).confinement()?;
        let shell = Shell { keepers: self.keepers.clone(), env, confinement };
        belongings.started = true;
        let agent = Agent {
            upstream: self.upstream.clone(),
            llm: api,
            model: model.upstream.clone(),
            max_tokens: model.max_tokens.map_or(max_tokens, NonZeroU64::get),
            system: system_prompt(&cwd, &model.readable, instructions.as_deref(), model.system_prompt.as_deref()),
            tools: Arc::new(
                Toolbox::new(cwd, model.permissions, shell).only(&model.allowed_tools).reading(&model.readable),
            ),
            max_turns: model.max_turns,
            silence: model.limits.idle,
        };
        let total = model.limits.total;
        let deadline = Instant::now() + total.min(LONGEST);
        Ok(AtWork { work: Work::new(agent, record, before, turn), total, deadline, belongings })
    }

    fn llm(&self, llm: &Llm) -> Result<(Arc<Api>, u64), Failure> {
        match (llm, &self.settings.embedded_llm) {
            (Llm::Service { api, max_tokens }, _) => Ok((Arc::new(api.clone()), *max_tokens)),
            (Llm::Embedded, Some(api)) => Ok((Arc::clone(api), EMBEDDED_TOKENS)),
            (Llm::Embedded, None) => {
                let failure = Failure::new(Category::Configuration, "the agent has no LLM");
                Err(failure.hint("set LLM_BASE_URL, LLM_AUTH_TOKEN and LLM_DEFAULT_MODEL"))
            }
        }
    }

    /// What a run of the model could write; none for one that is a service.
    pub(crate) fn bounds(&self, model: &Model, models: &Models) -> Option<Result<Bounds, Failure>> {
        match &model.backend {
            Backend::Api(_) => None,
            Backend::Agent(_) => {
                let env = self.shell_environment(models, model, "", &model.repo);
                let workspace = match model.worktree {
                    true => vec![self.settings.worktrees.join("<run>")],
                    false => sandbox::checkout(&model.repo),
                };
                Some(self.agents_scene(model, &env, workspace).bounds())
            }
            Backend::Program(provider) => {
                let (settings, turn) = (&self.settings, &Turn::default());
                let launch = Launch { settings, turn, model, provider, models, run: "<run>", owner: "<gateway>" };
                Some(launch.bounds())
            }
        }
    }

    fn agents_scene<'a>(
        &self,
        model: &'a Model,
        env: &'a [(OsString, OsString)],
        workspace: Vec<PathBuf>,
    ) -> Scene<'a> {
        Scene { usual: self.settings.sandbox, model, recipe: None, env, workspace, own: Vec::new() }
    }

    /// What the agent's commands see: no key of anybody.
    fn shell_environment(&self, models: &Models, model: &Model, run: &str, cwd: &Path) -> Vec<(OsString, OsString)> {
        let (all_keys, recipe) = (models.all_keys(), std::collections::BTreeMap::new());
        let child =
            Child { keys: &[], all_keys: &all_keys, cwd, run, owner: &self.mark, recipe: &recipe, model: &model.env };
        of_child(&self.settings.env, &child)
    }
}

fn system_prompt(cwd: &Path, readable: &[PathBuf], instructions: Option<&str>, own: Option<&str>) -> String {
    let mut place = format!(
        "You work in {}. Paths are relative to it. What a command leaves running in the background ends with it.",
        cwd.display()
    );
    if !readable.is_empty() {
        let folders: Vec<String> = readable.iter().map(|folder| folder.display().to_string()).collect();
        place.push_str(&format!(" You may also read files below {}, but not change them.", folders.join(", ")));
    }
    let parts = [Some(SYSTEM_PROMPT), Some(&place), instructions, own];
    let parts: Vec<&str> = parts.into_iter().flatten().map(str::trim).filter(|part| !part.is_empty()).collect();
    parts.join("\n\n")
}

impl AtWork {
    /// The next event; the last is `Finished` or `Failed`. Until then it does what it was last seen doing. Cancel safe.
    pub(crate) async fn next(&mut self, phase: &Phase) -> Event {
        let event = timeout_at(self.deadline, self.work.next()).await;
        let failure = match event {
            Ok(Some(Event::Failed(failure))) => failure,
            Ok(Some(event)) => return event,
            Ok(None) => Failure::new(Category::Unknown, "the agent ended without an answer"),
            Err(_elapsed) => {
                let overrun = Overrun { limit: Limit::Total, value: self.total, phase: phase.clone() };
                Failure::timed_out().hint(overrun.to_string())
            }
        };
        let secrets = &self.belongings.engine.settings.secrets;
        let message = secrets.mask(&failure.message);
        let hint = failure.hint.map(|hint| secrets.mask(&hint));
        Event::Failed(Failure { message, hint, ..failure })
    }

    /// Cancelled when the client is gone.
    pub(crate) fn cancelled(&self) -> CancellationToken {
        self.belongings.cancelled()
    }

    /// Ends whatever still runs and puts the workspace in order, in the background; then says what was left there.
    pub(crate) fn end(self) -> oneshot::Receiver<Option<Receipt>> {
        let Self { mut work, mut belongings, .. } = self;
        let (sender, receipt) = oneshot::channel();
        let engine = Arc::clone(&belongings.engine);
        engine.tracker.spawn(async move {
            work.stop().await;
            let receipt = belongings.put_in_order().await;
            drop(belongings);
            let _nobody_waits_for_it = sender.send(receipt);
        });
        receipt
    }
}
