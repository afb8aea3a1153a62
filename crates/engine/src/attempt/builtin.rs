//! The built-in agent: what it is given to work with, and how it ends.

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use trunkline_agent::tools::{ClientToolbox, Shell, Toolbox};
use trunkline_agent::transcript::AgentTranscript;
use trunkline_agent::transcript_file::TranscriptFiles;
use trunkline_agent::{AgentConfig, AgentTurn, SYSTEM_PROMPT};
use trunkline_core::api::{Api, Llm};
use trunkline_core::event::{Event, Receipt};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::limits::{LimitKind, Overrun};
use trunkline_core::model::{AGENT, Backend, Model};
use trunkline_core::phase::Phase;
use trunkline_core::turn::{OwnTools, Turn};

use crate::admission::Permit;
use crate::attempt::agent_file;
use crate::attempt::environment::{Child, of_child};
use crate::attempt::launch::LaunchRequest;
use crate::attempt::request::{AttemptRequest, with_worktree};
use crate::attempt::resources::AttemptResources;
use crate::router::models::Models;
use crate::sandbox::{self, Bounds, Scene};
use crate::settings::EngineSettings;
use crate::shared::Shared;
use crate::tools::{ClientTools, ToolExchange};

/// Token limit of the embedded mock LLM, whose answers come from its script.
const EMBEDDED_MAX_TOKENS: u64 = 4096;

/// Upper bound of a deadline: a longer one would overflow the clock.
const MAX_TURN_DURATION: Duration = Duration::from_hours(24 * 365);

/// An attempt of the built-in agent.
pub(crate) struct AgentAttempt {
    work: AgentTurn,
    total: Duration,
    deadline: Instant,
    /// The client's tools, if the turn has any.
    pub(crate) tools: Option<ToolExchange>,
    pub(crate) resources: AttemptResources,
}

/// Next step of an attempt of the built-in agent.
pub(crate) enum AgentStep {
    Event(Box<Event>),
    /// A call of a client's tool has arrived, or its event is not shown.
    Called,
    /// The run may end with the calls that wait.
    Settled,
}

/// Starts the built-in agent.
pub(crate) async fn begin(
    shared: &Arc<Shared>,
    attempt: &AttemptRequest<'_>,
    llm: &Llm,
    mut resources: AttemptResources,
) -> Result<AgentAttempt, Failure> {
    let (turn, model) = (attempt.turn, attempt.model);
    agent_file::check_repo(&model.repo)?;
    let instructions = match &model.agent_file {
        Some(name) => agent_file::read(&model.repo, name)?,
        None => None,
    };
    let (api, max_tokens) = llm_api(&shared.settings, llm)?;
    let records = TranscriptFiles::new(shared.settings.state.join(AGENT));
    let (record, before) = match &turn.session {
        Some(session) => records.resume(session, &model.repo, attempt.run)?,
        None => (records.begin(&model.repo, attempt.run), AgentTranscript::default()),
    };
    if model.worktree {
        // A model that must be confined and cannot be fails here, before git runs for it.
        if let Some(bounds) = bounds(shared, model, attempt.models) {
            bounds?;
        }
        resources = with_worktree(resources, attempt).await?;
        shared.worktrees.refill_spares();
    }
    let cwd = resources.cwd(model);
    if !cwd.is_dir() {
        let message = format!("{} is not in the last commit of its repository", model.repo.display());
        return Err(Failure::new(Category::Configuration, message).hint("commit it, or do without a worktree"));
    }
    let env = shell_environment(shared, attempt.models, model, attempt.id, &cwd);
    let confinement = match sandbox::freedom(model, shared.settings.sandbox, None)? {
        None => Some(agent_scene(model, &agent_places(model, &env), resources.workspace(model)).confinement()),
        Some(_) => None,
    };
    let shell = Shell { keepers: shared.keepers.clone(), env, confinement };
    resources.started = true;
    let off = turn.own_tools.unwrap_or(model.own_tools) == OwnTools::Off;
    // A list without any of the agent's tools.
    let own_tools = if off { &[String::new()][..] } else { &model.allowed_tools };
    let tools = ClientTools::of(&turn.options)?.map(|tools| {
        let own_names = trunkline_agent::tools::offered(model.permissions, own_tools);
        let port = shared.tools.ports.open(&tools);
        let client: Option<Arc<dyn ClientToolbox>> = shared.tools.ports.find(&port.token).map(|port| port as _);
        (client, ToolExchange::new(tools, Some(port), Duration::ZERO).beside(own_names))
    });
    let (client, tools) = tools.map_or((None, None), |(client, tools)| (client, Some(tools)));
    let agent = AgentConfig {
        upstream: shared.upstream.clone(),
        llm: api,
        model: model.upstream.clone(),
        max_tokens: model.max_tokens.map_or(max_tokens, NonZeroU64::get),
        system: system_prompt(&cwd, &model.readable, instructions.as_deref(), model.system_prompt.as_deref()),
        tools: Arc::new(
            Toolbox::new(cwd, model.permissions, shell)
                .only(own_tools)
                .reading(&model.readable)
                .with_client_tools(client),
        ),
        max_turns: model.max_turns,
        silence: model.limits.idle,
    };
    let total = model.limits.total;
    let deadline = Instant::now() + total.min(MAX_TURN_DURATION);
    Ok(AgentAttempt { work: AgentTurn::new(agent, record, before, turn), total, deadline, tools, resources })
}

fn llm_api(settings: &EngineSettings, llm: &Llm) -> Result<(Arc<Api>, u64), Failure> {
    match (llm, &settings.embedded_llm) {
        (Llm::Service { api, max_tokens }, _) => Ok((Arc::new(api.clone()), *max_tokens)),
        (Llm::Embedded, Some(api)) => Ok((Arc::clone(api), EMBEDDED_MAX_TOKENS)),
        (Llm::Embedded, None) => {
            let failure = Failure::new(Category::Configuration, "the agent has no LLM");
            Err(failure.hint("set LLM_BASE_URL, LLM_AUTH_TOKEN and LLM_DEFAULT_MODEL"))
        }
    }
}

/// The paths that a run of the model may write. `None` for an HTTP upstream.
pub(crate) fn bounds(shared: &Shared, model: &Model, models: &Models) -> Option<Result<Bounds, Failure>> {
    match &model.backend {
        Backend::Api(_) => None,
        Backend::Agent(_) => {
            let env = shell_environment(shared, models, model, "", &model.repo);
            let workspace = match model.worktree {
                true => vec![shared.settings.worktrees.join("<run>")],
                false => sandbox::checkout(&model.repo),
            };
            Some(sandbox::freedom(model, shared.settings.sandbox, None).map(|free| match free {
                None => Bounds::Within(agent_scene(model, &agent_places(model, &env), workspace).writable()),
                Some(free) => Bounds::Free(free),
            }))
        }
        Backend::Program(provider) => {
            let (settings, turn) = (&shared.settings, &Turn::default());
            let request = LaunchRequest { settings, turn, models, run: "<run>", owner: "<gateway>" };
            Some(request.once(model, provider).bounds())
        }
    }
}

fn agent_scene<'a>(model: &Model, usual: &'a Arc<[PathBuf]>, workspace: Vec<PathBuf>) -> Scene<'a> {
    Scene { permissions: model.permissions, workspace, usual }
}

fn agent_places(model: &Model, env: &[(OsString, OsString)]) -> Arc<[PathBuf]> {
    sandbox::usual_places(model, None, Vec::new(), &sandbox::in_list(env)).into()
}

/// Environment of the agent's shell commands, without API keys.
fn shell_environment(
    shared: &Shared,
    models: &Models,
    model: &Model,
    run: &str,
    cwd: &Path,
) -> Vec<(OsString, OsString)> {
    let (all_keys, recipe) = (models.all_keys(), std::collections::BTreeMap::new());
    let child = Child {
        keys: &[],
        all_keys: &all_keys,
        cwd,
        run,
        owner: &shared.identity.mark,
        recipe: &recipe,
        model: &model.env,
    };
    of_child(&shared.settings.env, &child)
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

impl AgentAttempt {
    /// Waits for the next event, for a call of a client's tool, or until a call may be answered. Cancel safe.
    pub(crate) async fn step(&mut self, phase: &Phase) -> AgentStep {
        let Self { work, total, deadline, tools, resources } = self;
        let event = next_event(work, (*total, *deadline), resources, phase);
        let Some(tools) = tools else { return AgentStep::Event(event.await.into()) };
        let settled_at = tools.settled_at();
        let settled = async {
            match settled_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            call = tools.next_call() => {
                tools.take_port_call(call);
                AgentStep::Called
            }
            () = settled => AgentStep::Settled,
            event = event => {
                let mut events = vec![event];
                tools.filter(&mut events);
                events.pop().map_or(AgentStep::Called, |event| AgentStep::Event(event.into()))
            }
        }
    }

    /// Continues with another run after the client has sent results.
    pub(crate) fn resume(&mut self, run: &str, permit: Permit, results: impl Fn(&str) -> Result<String, String>) {
        self.resources.resume(run, permit);
        self.deadline = Instant::now() + self.total.min(MAX_TURN_DURATION);
        self.answer_calls(results);
    }

    /// Answers the calls that wait.
    pub(crate) fn answer_calls(&mut self, results: impl Fn(&str) -> Result<String, String>) {
        if let Some(tools) = &mut self.tools {
            // All of its calls have a port.
            tools.answer(results);
        }
    }

    /// Cancelled when the client has disconnected.
    pub(crate) fn cancelled(&self) -> CancellationToken {
        self.resources.cancelled()
    }

    /// Stops what still runs and saves the workspace, in the background. The receiver gets the receipt.
    pub(crate) fn end(self) -> oneshot::Receiver<Option<Receipt>> {
        let Self { mut work, mut resources, .. } = self;
        let (sender, receipt) = oneshot::channel();
        let shared = Arc::clone(&resources.shared);
        shared.tasks.tracker.spawn(async move {
            work.stop().await;
            let receipt = resources.save_worktree().await;
            drop(resources);
            let _ = sender.send(receipt);
        });
        receipt
    }
}

/// The next event; the last is `Finished` or `Failed`. `phase` is named in the error of a timeout. Cancel safe.
async fn next_event(
    work: &mut AgentTurn,
    (total, deadline): (Duration, Instant),
    resources: &AttemptResources,
    phase: &Phase,
) -> Event {
    let event = timeout_at(deadline, work.next()).await;
    let failure = match event {
        Ok(Some(Event::Failed(failure))) => failure,
        Ok(Some(event)) => return event,
        Ok(None) => Failure::new(Category::Unknown, "the agent ended without an answer"),
        Err(_elapsed) => {
            let overrun = Overrun { limit: LimitKind::Total, value: total, phase: phase.clone() };
            Failure::timed_out().hint(overrun.to_string())
        }
    };
    let secrets = &resources.shared.settings.secrets;
    let message = secrets.mask(&failure.message);
    let hint = failure.hint.map(|hint| secrets.mask(&hint));
    Event::Failed(Failure { message, hint, ..failure })
}
