//! `trunkline check`: validates the configuration, shows exactly how each model would run, and explains routing on demand.

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use trunkline_agent::tools::offered;
use trunkline_core::api::Llm;
use trunkline_core::failure::Category;
use trunkline_core::limits::{RunLimits, format_duration};
use trunkline_core::model::{Backend, Model};
use trunkline_core::secret::Secrets;
use trunkline_core::turn::OwnTools;
use trunkline_core::vocabulary::PromptDelivery;
use trunkline_engine::router::{Alias, CircuitState, SideRequests};
use trunkline_engine::{Bounds, Caps, Engine, Explanation, Models, Plan};

use crate::config::{ServerSettings, no_worktree_of};
use crate::engine_args::EngineArgs;
use crate::exit::CliExit;
use crate::output::{say, tell};
use crate::setup::{LoadedConfig, runtime};
use crate::shell::quoted;

/// Validate the configuration and show the exact command of each model
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trunkline check                        every model: program, arguments, environment, limits
  trunkline check my-model               only this one
  trunkline check --route auto:codegen   which models would be tried for this name, and why

Exit status: 0 ok, 3 if the configuration is wrong or a model cannot run, 4 if nothing could answer for the name of --route.")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    engine_args: EngineArgs,
    /// Show the order in which models would be tried for this name now, and why
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// Show only this model, or this provider of the router
    #[arg(conflicts_with = "route")]
    model: Option<String>,
}

impl CheckArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = LoadedConfig::new(&self.engine_args)?;
        let runtime = runtime()?;
        let engine = runtime.block_on(async { loaded.engine(Caps::default(), None) })?;
        let shown = match &self.route {
            Some(name) => route(&engine, &loaded, name),
            None => self.models(&loaded, &engine),
        };
        runtime.block_on(engine.shutdown());
        shown
    }

    fn models(&self, loaded: &LoadedConfig, engine: &Engine) -> Result<ExitCode> {
        match loaded.config_folder.path() {
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
                tell(format_args!("trunkline: {}", loaded.config.unknown_model(name, &loaded.environment)));
                return Ok(CliExit::Configuration.into());
            }
            // A name of the router, an alias, or a name that the default model answers for.
            say("")?;
            return route(engine, loaded, name);
        }
        if self.model.is_none() {
            show_aliases(&loaded.config.models)?;
            show_origins(&loaded.config.server)?;
            show_side_requests(&loaded.config.models)?;
        }
        for warning in &loaded.config.warnings {
            say(format!("\nwarning: {warning}"))?;
        }
        Ok(if broken { CliExit::Configuration.into() } else { ExitCode::SUCCESS })
    }
}

/// Shows which model each alias leads to.
fn show_aliases(models: &Models) -> io::Result<()> {
    if models.aliases().is_empty() {
        return Ok(());
    }
    say("\naliases, the first that matches is used")?;
    let width = models.aliases().iter().map(|alias| alias.pattern.chars().count()).max().unwrap_or(0);
    for Alias { pattern, target, file, .. } in models.aliases().iter() {
        say(format!("  {pattern:width$}  → {target}  ({file})"))?;
    }
    Ok(())
}

/// Shows which web pages may use the API, besides those that `serve --allow-origin` allows.
fn show_origins(server: &ServerSettings) -> io::Result<()> {
    if server.allow_origins.is_empty() {
        return Ok(());
    }
    say("\nallowed origins of web pages (each request needs an API key)")?;
    server.allow_origins.iter().try_for_each(|origin| say(format!("  {origin}")))
}

/// Shows how requests run that clients send on their own, if that is configured.
fn show_side_requests(models: &Models) -> io::Result<()> {
    let SideRequests { rules, model, off, .. } = models.side_requests();
    match model {
        _ if *off => say("\nside requests of clients run like all others")?,
        Some(model) => say(format!("\nside requests of clients are answered by {model}"))?,
        None if !rules.is_empty() => say("\nside requests of clients")?,
        None => return Ok(()),
    }
    rules.iter().try_for_each(|rule| say(format!("  {}  (clients.toml)", rule.name)))
}

/// Models of a provider of the router: its default, and one for each hint.
fn models_of(routed: &trunkline_engine::router::Routed) -> String {
    let default = routed.model.upstream.as_deref().unwrap_or("its own default");
    let hints = routed
        .hints
        .iter()
        .map(|(hint, model)| format!("{hint}: {}", model.upstream.as_deref().unwrap_or("its own default")));
    std::iter::once(default.to_owned()).chain(hints).collect::<Vec<_>>().join(", ")
}

/// Shows how a model would run. Returns true if it cannot.
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
            show_tools(model)?;
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

/// MCP servers of a model, the rest of a CLI's own tools if they are off, and what happens to members without effect.
fn show_tools(model: &Model) -> io::Result<()> {
    for server in model.mcp_servers.iter().filter(|_| model.backend.takes_mcp_servers()) {
        say(format!("  mcp     {} at {}", server.name, server.shown()))?;
    }
    if !model.allow_mcp_servers.is_empty() && model.backend.takes_mcp_servers() {
        let patterns: Vec<String> = model.allow_mcp_servers.iter().map(ToString::to_string).collect();
        say(format!("  mcp     clients may bring servers: {}", patterns.join(", ")))?;
    }
    let recipe = model.backend.program().and_then(|provider| provider.live.as_ref()?.tools.as_ref());
    if model.own_tools == OwnTools::Off {
        match recipe {
            Some(recipe) if recipe.left.is_empty() => say("  tools   own tools off")?,
            Some(recipe) => {
                say(format!("  tools   own tools off; cannot be switched off: {}", recipe.left.join(", ")))?
            }
            None => say("  tools   own tools cannot be switched off: every run fails")?,
        }
        if let Some(recipe) = recipe.filter(|recipe| !recipe.schemas.is_empty()) {
            say(format!("  schemas of client tools: {}", recipe.schemas))?;
        }
    }
    if model.strict_parameters {
        say("  strict  members of a request without effect are refused")?;
    }
    Ok(())
}

/// Limits of a run: the total, and the shorter limits on silence.
fn timeouts(limits: &RunLimits) -> String {
    let silences = [
        (limits.startup, "until the first output"),
        (limits.idle, "of silence"),
        (limits.tool, "of silence in a tool"),
        (limits.compact, "of silence while compacting"),
    ];
    let shorter = silences.into_iter().filter(|(limit, _)| *limit < limits.total);
    let shorter: Vec<String> = shorter.map(|(limit, when)| format!("{} {when}", format_duration(limit))).collect();
    let total = format!("{} in all", format_duration(limits.total));
    std::iter::once(total).chain(shorter).collect::<Vec<_>>().join(", ")
}

fn show_plan(plan: &Plan, secrets: &Secrets) -> io::Result<()> {
    let program = match &plan.program {
        Ok(path) => quoted(&path.to_string_lossy()),
        Err(failure) => {
            say(format!("  error   {failure}"))?;
            if let Some(hint) = &failure.hint {
                say(format!("  hint    {hint}"))?;
            }
            "?".to_owned()
        }
    };
    let args: Vec<String> = plan.args.iter().map(|arg| quoted(arg)).collect();
    say(format!("  argv    {program} {}", args.join(" ")))?;
    say(format!("  cwd     {}", plan.cwd.display()))?;
    for (name, value) in &plan.env {
        say(format!("  env     {}={}", name.display(), quoted(&secrets.mask(&value.to_string_lossy()))))?;
    }
    say(match plan.delivery {
        PromptDelivery::Stdin => "  prompt  on stdin, then closed",
        PromptDelivery::Arg => "  prompt  as an argument, at most 128 KiB",
        PromptDelivery::Request => "  prompt  as a JSON request on stdin",
    })
}

/// Shows which instruction files reach the agent, and how.
fn show_instructions(model: &Model) -> io::Result<()> {
    let by_itself = model.backend.program().is_some_and(|provider| provider.reads_agents_md);
    say(match (&model.agent_file, by_itself) {
        (Some(file), true) => format!("  rules   {file} in the prompt; the CLI also reads AGENTS.md by itself"),
        (Some(file), false) => format!("  rules   {file} in the prompt"),
        (None, true) => "  rules   the CLI reads AGENTS.md by itself".to_owned(),
        (None, false) => "  rules   none".to_owned(),
    })
}

/// Shows where a run of the model can write. Returns true if it must be confined and cannot be.
fn show_bounds(engine: &Engine, model: &Model) -> io::Result<bool> {
    match engine.bounds(model) {
        Some(Ok(Bounds::Within(folders))) => {
            let existing = folders.iter().filter(|path| path.exists() || path.starts_with(engine.worktrees()));
            let shown: Vec<String> = existing.map(|path| quoted(&path.to_string_lossy())).collect();
            say(format!("  writes  {}", shown.join(" ")))?;
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

/// Shows how conversations with this model are resumed.
fn show_memory(model: &Model) -> io::Result<()> {
    say(match (model.backend.resumes(), model.resume) {
        (false, _) => "  memory  none: each request carries the whole conversation",
        (true, true) => "  memory  resumes a session by its id, or by the history that a client sends",
        (true, false) => "  memory  resumes a session by its id only (resume: false)",
    })
}

fn route(engine: &Engine, loaded: &LoadedConfig, name: &str) -> Result<ExitCode> {
    let Some(explanation) = engine.explain(name) else {
        tell(format_args!("trunkline: {}", loaded.config.unknown_model(name, &loaded.environment)));
        return Ok(CliExit::Configuration.into());
    };
    match &explanation.alias {
        Some(Alias { pattern, target, file, .. }) => {
            say(format!("{name} is an alias of {target} ({pattern} in {file}), which would be tried in this order:"))?;
        }
        None => say(format!("{name} would be tried in this order:"))?,
    }
    for (index, candidate) in explanation.candidates.iter().enumerate() {
        say(format!("\n{}. {} ({})", index + 1, candidate.model, candidate.kind))?;
        say(format!("   why      {}", candidate.why))?;
        if let Some(upstream) = &candidate.upstream {
            say(format!("   model    {upstream}"))?;
        }
        say(format!("   circuit  {}", circuit(&candidate.circuit)))?;
        if let Some(problem) = &candidate.problem {
            say(format!("   problem  {problem}"))?;
        }
    }
    say(format!("\n{}", retry_rules(&explanation)))?;
    let ready = explanation.candidates.iter().any(|candidate| candidate.problem.is_none());
    Ok(if ready { ExitCode::SUCCESS } else { CliExit::Provider.into() })
}

fn retry_rules(explanation: &Explanation) -> String {
    let list = |categories: &[Category]| categories.iter().map(|c| c.name()).collect::<Vec<_>>().join(", ");
    format!(
        "retried up to {} times after: {}\nthe next one is tried after: {}",
        explanation.max_retries,
        list(&explanation.retry_on),
        list(&explanation.fallback_on)
    )
}

/// Text for the state of a circuit breaker.
pub(crate) fn circuit(state: &CircuitState) -> String {
    match state {
        CircuitState::Closed { failures: 0 } => "closed".to_owned(),
        CircuitState::Closed { failures } => format!("closed, {failures} recent failures"),
        CircuitState::Open { for_ms } => format!("open for another {} s", for_ms.div_ceil(1000)),
        CircuitState::HalfOpen => "half open: the next request is a trial".to_owned(),
    }
}
