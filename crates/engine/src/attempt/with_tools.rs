//! The start of an attempt whose turn has tools of the client or MCP servers, or whose CLI has no tools of its own. It always runs on
//! a process that is spoken to over stdio: one that is kept ready, one that holds the session, or a new one. So secrets of servers
//! are neither in arguments nor in files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::live::{LiveProtocol, LiveRecipe, ToolOffer};
use trunkline_core::mcp_server::McpServer;
use trunkline_core::prompt::Prompt;

use crate::attempt::events::CliAttempt;
use crate::attempt::launch::Launch;
use crate::attempt::request::{AttemptRequest, BeginError};
use crate::attempt::resources::AttemptResources;
use crate::attempt::warm::{WarmAttempt, say};
use crate::shared::Shared;
use crate::tools::{ClientTools, ToolExchange};
use crate::warm::{BootSpec, TakenProcess, WarmProcess, WarmTarget};

/// Starts the turn on a process that has the tools.
pub(super) async fn begin(
    shared: &Arc<Shared>,
    launch: &Launch<'_>,
    attempt: &AttemptRequest<'_>,
    tools: Option<Arc<ClientTools>>,
    (prompt, program): (Prompt, PathBuf),
    mut resources: AttemptResources,
) -> Result<CliAttempt, BeginError> {
    let (turn, model, provider) = (attempt.turn, attempt.model, launch.provider);
    if turn.images().next().is_some() {
        let message = format!("{} cannot take images and tools of the client in one request", provider.name);
        return Err(Failure::new(Category::Validation, message).into());
    }
    let cwd = resources.cwd(model);
    let boot = Arc::new(launch.tool_boot(&prompt, &program, &cwd, resources.workspace(model), None)?);
    let servers = launch.requested_servers();
    let mut resumed = None;
    let live = provider.live.as_ref().ok_or_else(|| failed(provider.name.as_str(), "it has no live protocol"))?;
    let process = match &turn.session {
        Some(session) => {
            let up_to_date = shared.warm.begin_turn(&provider.name, session);
            let held = if up_to_date { shared.warm.take_session(&boot, session).await } else { None };
            match held {
                Some(held) if has_tools(&held, tools.as_deref()) && held.servers == servers => held,
                other => {
                    if let Some(other) = other {
                        other.end(shared.settings.linger).await;
                    } else {
                        shared.warm.end_held(&provider.name, session).await;
                    }
                    if tools.is_some() {
                        return Err(lost("the process of the session has ended, or had other tools").into());
                    }
                    let workspace = resources.workspace(model);
                    let for_session = launch.tool_boot(&prompt, &program, &cwd, workspace, Some(&session.0))?;
                    let started = shared.warm.start_now(&Arc::new(for_session), attempt.id).await;
                    let mut process = started.map_err(|why| lost(&shared.settings.secrets.mask(&why)))?;
                    // The next turn of the session looks for the process by what all its turns have in common.
                    process.boot = boot;
                    process.servers.clone_from(&servers);
                    resumed = Some(&*session.0).filter(|_| live.protocol == LiveProtocol::AppServer);
                    process
                }
            }
        }
        None => {
            let target = if launch.always_with_tools() { WarmTarget::of(model, &boot) } else { WarmTarget::ByUse };
            let mut process = ready_process(shared, &boot, target, attempt).await?;
            if tools.is_some() || !servers.is_empty() {
                offer(shared, &mut process, live, tools.clone(), servers)
                    .await
                    .map_err(|why| failed(&provider.name, &why))?;
            }
            process
        }
    };
    let WarmProcess { mut running, mut line, boot, stamps, scratch, tools: mut exchange, servers } = process;
    let mut words = prompt.text.clone();
    if let (Some(exchange), Some(tools)) = (&mut exchange, tools) {
        words.extend(tools.instruction().map(|instruction| format!("\n\n{instruction}")));
        exchange.begin_turn(tools);
    }
    let Some(words) = say(&mut line, live, &words, resumed, attempt.schema.as_ref()) else {
        return Err(failed(&provider.name, "it takes no turn").into());
    };
    running.limit(model.limits);
    running.write(&words);
    tracing::debug!(run = attempt.id, model = model.name, pid = running.pid(), "started with tools of the client");
    resources.started = true;
    let answers_by = WarmAttempt::answers_by(model.limits.startup);
    Ok(CliAttempt {
        running,
        warm: Some(WarmAttempt { line, boot, stamps, scratch, tools: exchange, servers, cold: None, answers_by }),
        decoder: provider.decoder(model.normalize, launch.form()),
        provider: Arc::clone(model.backend.program().ok_or_else(|| failed(&provider.name, "it is no program"))?),
        model: Arc::clone(model),
        prompt: prompt.text,
        session: turn.session.clone(),
        resources,
        standby: attempt.standby.clone(),
        deadline: None,
        shown: false,
        has_schema: false,
        generate: None,
    })
}

/// Takes a process that is kept ready, or starts one.
async fn ready_process(
    shared: &Shared,
    boot: &Arc<BootSpec>,
    target: WarmTarget,
    attempt: &AttemptRequest<'_>,
) -> Result<WarmProcess, BeginError> {
    let (model, provider) = (attempt.model, boot.provider.as_str());
    // A process in a worktree cannot be kept ready.
    let keeps_ready = shared.warm.is_open() && !model.worktree && model.warm != Some(0);
    let taken = if keeps_ready { shared.warm.take(boot, target, None).await } else { None };
    if let Some(TakenProcess { process, .. }) = taken {
        return Ok(process);
    }
    let began = Instant::now();
    let started = shared.warm.start_now(boot, attempt.id).await;
    let process = started.map_err(|why| failed(provider, &shared.settings.secrets.mask(&why)))?;
    tracing::debug!(provider, took = ?began.elapsed(), "process for tools of the client is ready");
    Ok(process)
}

/// Offers the tools and the servers to a process that has had no turn yet.
async fn offer(
    shared: &Shared,
    process: &mut WarmProcess,
    live: &LiveRecipe,
    tools: Option<Arc<ClientTools>>,
    servers: Vec<McpServer>,
) -> Result<(), String> {
    let Some(tools) = tools else {
        process.offer(&ToolOffer { servers: servers.clone(), ..ToolOffer::default() }).await?;
        process.servers = servers;
        return Ok(());
    };
    let settle_time = Duration::from_millis(live.tools.as_ref().map_or(0, |recipe| recipe.settle_ms));
    let list = tools.tools().to_vec();
    let (exchange, server) = match live.protocol {
        LiveProtocol::Claude | LiveProtocol::AppServer => (ToolExchange::new(tools, None, settle_time), None),
        LiveProtocol::Acp => {
            let endpoint = shared.tools.endpoint.get().ok_or("no server for its calls of tools runs here")?;
            let address = endpoint.address().await.map_err(|error| format!("no server for its calls: {error}"))?;
            let port = shared.tools.ports.open(&tools);
            let exchange = ToolExchange::new(tools, Some(port), settle_time);
            let server = exchange.server(&format!("http://{address}/mcp"));
            (exchange, server)
        }
    };
    process.offer(&ToolOffer { tools: list, server, servers: servers.clone() }).await?;
    process.servers = servers;
    process.tools = Some(exchange);
    Ok(())
}

/// Whether a process has exactly the tools of this turn.
fn has_tools(process: &WarmProcess, tools: Option<&ClientTools>) -> bool {
    match (&process.tools, tools) {
        (Some(exchange), Some(tools)) => exchange.tools().same_as(tools),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// The session cannot be continued, for this reason.
fn lost(why: &str) -> Failure {
    Failure { session_lost: true, ..Failure::new(Category::NotFound, why) }
}

fn failed(provider: &str, why: &str) -> Failure {
    Failure::new(Category::Server, format!("{provider} could not be started with the tools of the client: {why}"))
        .hint("try: trunkline doctor")
}
