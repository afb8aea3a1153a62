//! `trunkline check`: whether the configuration is right, exactly how each model would run, and on demand, which way a
//! turn for a name would take now.

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use trunkline_agent::tools::offered;
use trunkline_core::api::Llm;
use trunkline_core::failure::Category;
use trunkline_core::limits::{Limits, span};
use trunkline_core::model::{Backend, Model};
use trunkline_core::provider::Delivery;
use trunkline_core::secret::Secrets;
use trunkline_engine::router::CircuitState;
use trunkline_engine::{Bounds, Caps, Engine, Explanation, Plan};

use crate::Exit;
use crate::cli::Places;
use crate::config::no_worktree_of;
use crate::setup::{Loaded, runtime, say, tell};

/// Validate the configuration and show the exact command of each model
#[derive(Debug, Args)]
#[command(after_help = "Example: trunkline check --route auto:codegen")]
pub(crate) struct Check {
    #[command(flatten)]
    places: Places,
    /// Explain the order in which a turn for this name would be tried now, and why
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// Only this model, or provider of the router
    #[arg(conflicts_with = "route")]
    model: Option<String>,
}

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = Loaded::new(&self.places)?;
        let runtime = runtime()?;
        let engine = runtime.block_on(async { loaded.engine(Caps::default(), None) })?;
        let shown = match &self.route {
            Some(name) => route(&engine, &loaded, name),
            None => self.models(&loaded, &engine),
        };
        runtime.block_on(engine.shutdown());
        shown
    }

    fn models(&self, loaded: &Loaded, engine: &Engine) -> Result<ExitCode> {
        match loaded.place.folder() {
            Some(folder) => say(format!("configuration: {}", folder.display()))?,
            None => say("configuration: none; a model for each CLI on the PATH")?,
        }
        let router = &loaded.config.models.router().providers;
        let all = loaded.config.models.iter().map(|model| (model.name.clone(), model, String::new()));
        let routed = router.iter().map(|routed| {
            let about = format!("  router  priority {}, as {}", routed.priority, models_of(routed));
            (routed.name.clone(), &routed.model, about)
        });
        let (mut broken, mut shown) = (false, 0);
        let built_in = loaded.config.models.built_in().map(|model| (model.name.clone(), model, String::new()));
        for (name, model, about) in all.chain(routed).chain(built_in) {
            if self.model.as_ref().is_some_and(|wanted| *wanted != name) {
                continue;
            }
            shown += 1;
            say(format!("\n{name}"))?;
            if !about.is_empty() {
                say(about)?;
            }
            broken |= show(engine, model)?;
        }
        if let Some(name) = self.model.as_deref().filter(|_| shown == 0) {
            if !loaded.config.models.knows(name) {
                tell(format_args!("trunkline: {}", loaded.config.unknown_model(name, &loaded.around)));
                return Ok(Exit::Configuration.into());
            }
            // A name of the router, or one that a single model answers for with all others.
            say("")?;
            return route(engine, loaded, name);
        }
        for warning in &loaded.config.warnings {
            say(format!("\nwarning: {warning}"))?;
        }
        Ok(if broken { Exit::Configuration.into() } else { ExitCode::SUCCESS })
    }
}

/// The models a provider is asked for: its default, and one for each hint.
fn models_of(routed: &trunkline_engine::router::Routed) -> String {
    let default = routed.model.upstream.as_deref().unwrap_or("its own default");
    let hints = routed
        .hints
        .iter()
        .map(|(hint, model)| format!("{hint}: {}", model.upstream.as_deref().unwrap_or("its own default")));
    std::iter::once(default.to_owned()).chain(hints).collect::<Vec<_>>().join(", ")
}

/// Shows how a model would run; true if it cannot.
fn show(engine: &Engine, model: &Model) -> Result<bool> {
    if let Backend::Api(api) = &model.backend {
        say(format!("  url     {}/chat/completions", api.shown_url()))?;
        let key = api.key.as_ref();
        if let Some(key) = key {
            let set = if key.value.is_some() { "set" } else { "not set" };
            say(format!("  key     from {}, which is {set}", key.variable))?;
        }
        say(format!("  timeout {}", timeouts(&model.limits)))?;
        return Ok(key.is_some_and(|key| key.value.is_none()));
    }
    if let Backend::Agent(llm) = &model.backend {
        show_agent(engine, llm, model)?;
        let unbound = show_bounds(engine, model)?;
        show_memory(model)?;
        return Ok(!model.repo.is_dir() || no_worktree_of(model).is_some() || unbound);
    }
    match engine.plan(model) {
        Some(Ok(plan)) => {
            show_plan(&plan, engine.secrets())?;
            say(format!("  timeout {}", timeouts(&model.limits)))?;
            show_instructions(model)?;
            let unbound = show_bounds(engine, model)?;
            show_memory(model)?;
            Ok(plan.program.is_err() || !model.repo.is_dir() || no_worktree_of(model).is_some() || unbound)
        }
        Some(Err(failure)) => {
            say(format!("  error   {failure}"))?;
            Ok(true)
        }
        None => Ok(false),
    }
}

fn show_agent(engine: &Engine, llm: &Llm, model: &Model) -> io::Result<()> {
    match llm {
        Llm::Service { api, max_tokens } => {
            say(format!("  llm     {}/chat/completions", api.shown_url()))?;
            say(format!("  model   {}", model.upstream.as_deref().unwrap_or("not set: LLM_DEFAULT_MODEL")))?;
            say(format!(
                "  key     {}",
                if api.key.is_some() { "from LLM_AUTH_TOKEN" } else { "none: LLM_AUTH_TOKEN" }
            ))?;
            say(format!("  tokens  at most {max_tokens} a message: LLM_MAX_TOKENS"))?;
        }
        Llm::Embedded => say("  llm     the built-in mock; set LLM_BASE_URL for a real one")?,
    }
    let cwd = if model.worktree { engine.worktrees().join("<run>") } else { model.repo.clone() };
    say(format!("  cwd     {}", cwd.display()))?;
    let tools = offered(model.permissions, &model.allowed_tools);
    say(format!("  tools   {}", if tools.is_empty() { "none".to_owned() } else { tools.join(", ") }))?;
    say(format!("  timeout {}", timeouts(&model.limits)))
}

/// The limits of a run: the whole, and the silences that end it sooner.
fn timeouts(limits: &Limits) -> String {
    let silences = [
        (limits.startup, "until the first output"),
        (limits.idle, "of silence"),
        (limits.tool, "of silence in a tool"),
        (limits.compact, "of silence while compacting"),
    ];
    let shorter = silences.into_iter().filter(|(limit, _)| *limit < limits.total);
    let shorter: Vec<String> = shorter.map(|(limit, when)| format!("{} {when}", span(limit))).collect();
    let whole = format!("{} in all", span(limits.total));
    std::iter::once(whole).chain(shorter).collect::<Vec<_>>().join(", ")
}

fn show_plan(plan: &Plan, secrets: &Secrets) -> io::Result<()> {
    let program = match &plan.program {
        Ok(path) => quote(&path.to_string_lossy()),
        Err(failure) => {
            say(format!("  error   {failure}"))?;
            if let Some(hint) = &failure.hint {
                say(format!("  hint    {hint}"))?;
            }
            "?".to_owned()
        }
    };
    let args: Vec<String> = plan.args.iter().map(|arg| quote(arg)).collect();
    say(format!("  argv    {program} {}", args.join(" ")))?;
    say(format!("  cwd     {}", plan.cwd.display()))?;
    for (name, value) in &plan.env {
        say(format!("  env     {}={}", name.display(), quote(&secrets.mask(&value.to_string_lossy()))))?;
    }
    say(match plan.delivery {
        Delivery::Stdin => "  prompt  on stdin, then closed",
        Delivery::Arg => "  prompt  as an argument, at most 128 KiB",
        Delivery::Request => "  prompt  as a JSON request on stdin",
    })
}

/// Shows which instructions reach the agent, and how.
fn show_instructions(model: &Model) -> io::Result<()> {
    let by_itself = model.backend.program().is_some_and(|provider| provider.reads_agents_md);
    say(match (&model.agent_file, by_itself) {
        (Some(file), true) => format!("  rules   {file} in the prompt; the CLI also reads AGENTS.md by itself"),
        (Some(file), false) => format!("  rules   {file} in the prompt"),
        (None, true) => "  rules   the CLI reads AGENTS.md by itself".to_owned(),
        (None, false) => "  rules   none".to_owned(),
    })
}

/// Where a run of the model could write; true if it must be confined and cannot be.
fn show_bounds(engine: &Engine, model: &Model) -> io::Result<bool> {
    match engine.bounds(model) {
        Some(Ok(Bounds::Within(places))) => {
            let there = places.iter().filter(|path| path.exists() || path.starts_with(engine.worktrees()));
            let places: Vec<String> = there.map(|path| quote(&path.to_string_lossy())).collect();
            say(format!("  writes  {}", places.join(" ")))?;
        }
        Some(Ok(Bounds::Free(free))) => say(format!("  writes  {free}"))?,
        Some(Err(failure)) => {
            say(format!("  error   {failure}"))?;
            return Ok(true);
        }
        None => {}
    }
    Ok(false)
}

/// How a conversation goes on with this model.
fn show_memory(model: &Model) -> io::Result<()> {
    say(match (model.backend.resumes(), model.resume) {
        (false, _) => "  memory  none: it is told the whole conversation each time",
        (true, true) => "  memory  resumes a session by its id, or by the history that a client sends",
        (true, false) => "  memory  resumes a session by its id only (resume: false)",
    })
}

/// An argument as a shell would need it.
fn quote(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) { arg.to_owned() } else { format!("'{}'", arg.replace('\'', "'\\''")) }
}

fn route(engine: &Engine, loaded: &Loaded, name: &str) -> Result<ExitCode> {
    let Some(explanation) = engine.explain(name) else {
        tell(format_args!("trunkline: {}", loaded.config.unknown_model(name, &loaded.around)));
        return Ok(Exit::Configuration.into());
    };
    say(format!("{} would be tried in this order:", explanation.model))?;
    for (index, rung) in explanation.candidates.iter().enumerate() {
        say(format!("\n{}. {} ({})", index + 1, rung.model, rung.kind))?;
        say(format!("   why      {}", rung.why))?;
        if let Some(upstream) = &rung.upstream {
            say(format!("   model    {upstream}"))?;
        }
        say(format!("   circuit  {}", circuit(&rung.circuit)))?;
        if let Some(problem) = &rung.problem {
            say(format!("   problem  {problem}"))?;
        }
    }
    say(format!("\n{}", follows(&explanation)))?;
    let ready = explanation.candidates.iter().any(|rung| rung.problem.is_none());
    Ok(if ready { ExitCode::SUCCESS } else { Exit::Provider.into() })
}

fn follows(explanation: &Explanation) -> String {
    let list = |categories: &[Category]| categories.iter().map(|c| c.name()).collect::<Vec<_>>().join(", ");
    format!(
        "tried again, up to {} times, after: {}\nthe next one is tried after: {}",
        explanation.max_retries,
        list(&explanation.retry_on),
        list(&explanation.fallback_on)
    )
}

/// A circuit in words.
pub(crate) fn circuit(state: &CircuitState) -> String {
    match state {
        CircuitState::Closed { failures: 0 } => "closed".to_owned(),
        CircuitState::Closed { failures } => format!("closed, {failures} failures of late"),
        CircuitState::Open { for_ms } => format!("open for another {} s", for_ms.div_ceil(1000)),
        CircuitState::HalfOpen => "half open: the next one may try".to_owned(),
    }
}
