//! The start of one attempt: prepares the workspace, then starts a program, uses a warm process, or calls a service.

use std::path::Path;
use std::sync::Arc;

use trunkline_core::api::Api;
use trunkline_core::failure::Failure;
use trunkline_core::model::{Backend, Model};
use trunkline_core::prompt::{self, Prompt};
use trunkline_core::turn::{OwnTools, Turn};
use trunkline_process::RunningProcess;
use trunkline_upstream::{RequestFacts, UpstreamCall, UpstreamTimeouts};
use trunkline_wire::upstream;

use crate::admission::Permit;
use crate::attempt::agent_file;
use crate::attempt::builtin;
use crate::attempt::events::{Attempt, CliAttempt};
use crate::attempt::launch::{Launch, LaunchRequest};
use crate::attempt::plan::bounded;
use crate::attempt::request::{AttemptRequest, BeginError, NativeSchema, start_process, with_worktree};
use crate::attempt::resources::AttemptResources;
use crate::attempt::scratch::Scratch;
use crate::attempt::warm::{WarmAttempt, say};
use crate::attempt::with_tools;
use crate::shared::Shared;
use crate::tools::ClientTools;
use crate::warm::{TakenProcess, WarmProcess, WarmTarget};

/// Prepares the workspace and starts the provider.
pub(crate) async fn begin(
    shared: &Arc<Shared>,
    attempt: AttemptRequest<'_>,
    permit: Permit,
) -> Result<Attempt, BeginError> {
    let (scratch, session) = (Scratch::new(&shared.settings.state, attempt.id), attempt.session.clone());
    let mut resources = AttemptResources::new(Arc::clone(shared), permit, session, scratch, attempt.run);
    let AttemptRequest { turn, model, models, id, .. } = attempt;
    let provider = match &model.backend {
        Backend::Program(provider) => provider,
        Backend::Api(api) => return Ok(Attempt::calling(call(shared, api, turn, model)?, resources)),
        Backend::Agent(llm) => return Ok(Attempt::working(builtin::begin(shared, &attempt, llm, resources).await?)),
    };
    let request = LaunchRequest { settings: &shared.settings, turn, models, run: id, owner: &shared.identity.mark };
    let launch = request.of(model, provider);
    // A missing program is reported when the process is started, unless git runs before that.
    let program = if model.worktree { launch.program()? } else { launch.program_unchecked()? };
    let prompt = launch.prompt()?;
    let schema = attempt.schema.clone();
    // A model that must be confined and cannot be fails here, before git runs for it.
    launch.freedom()?;
    if model.worktree {
        resources = with_worktree(resources, &attempt).await?;
    }
    let cwd = resources.cwd(model);
    let tools = if provider.takes_tools() { ClientTools::of(&turn.options)? } else { None };
    let has_servers = provider.takes_tools() && (!model.mcp_servers.is_empty() || launch.has_requested_servers());
    if tools.is_some() || has_servers || launch.own_tools() == OwnTools::Off {
        let begun = with_tools::begin(shared, &launch, &attempt, tools, (prompt, program), resources).await?;
        return Ok(Attempt::new(begun));
    }
    let up_to_date = turn.session.as_ref().is_none_or(|session| shared.warm.begin_turn(&provider.name, session));
    let warm = if shared.warm.is_open() {
        on_warm_process(shared, &launch, (&prompt, schema.as_ref()), &program, &cwd, up_to_date).await?
    } else {
        None
    };
    let (prompt, schema) = match schema {
        Some(schema) if !provider.takes_schema() => (schema.instruct(&prompt), None),
        schema => (prompt, schema),
    };
    let passed_on = schema.as_ref().map(|schema| schema.text.as_str());
    let compiled = launch.compiled(&program).map(|folder| (folder.is_dir(), folder));
    let ready = compiled.as_ref().filter(|(exists, _)| *exists).map(|(_, folder)| folder.as_path());
    let spec = launch.spec(&prompt, program.clone(), ready, passed_on, &mut resources)?;
    let generate = launch.generating(&spec, &prompt)?.map(Box::new);
    let (running, warm) = match warm {
        Some((running, warm)) => (running, Some(WarmAttempt { cold: Some(spec), ..warm })),
        None => {
            let started = start_process(&shared.keepers, spec, provider).await;
            (started.map_err(|failed| launch.explain(failed))?, None)
        }
    };
    tracing::debug!(run = id, model = model.name, pid = running.pid(), warm = warm.is_some(), "started");
    resources.started = true;
    if let Some((false, folder)) = compiled {
        launch.compile_ahead(shared, &program, folder);
    }
    Ok(Attempt::new(CliAttempt {
        running,
        warm,
        decoder: provider.decoder(model.normalize, launch.form()),
        provider: Arc::clone(provider),
        model: Arc::clone(model),
        prompt: prompt.text,
        session: turn.session.clone(),
        resources,
        standby: attempt.standby,
        deadline: None,
        shown: false,
        has_schema: schema.is_some(),
        generate,
    }))
}

/// Sends the turn to a warm process that fits it, if there is one.
async fn on_warm_process(
    shared: &Shared,
    launch: &Launch<'_>,
    (prompt, schema): (&Prompt, Option<&NativeSchema>),
    program: &Path,
    cwd: &Path,
    up_to_date: bool,
) -> Result<Option<(RunningProcess, WarmAttempt)>, Failure> {
    let session = launch.request.turn.session.as_ref();
    let boot = launch.boot(prompt, program, cwd)?.map(Arc::new);
    if let Some(session) = session
        && (boot.is_none() || !up_to_date)
    {
        shared.warm.end_held(&launch.provider.name, session).await;
    }
    let (Some(boot), Some(live)) = (boot, &launch.provider.live) else { return Ok(None) };
    let taken = shared.warm.take(&boot, WarmTarget::of(launch.model, &boot), session).await;
    let Some(TakenProcess { process: kept, fresh }) = taken else { return Ok(None) };
    let WarmProcess { mut running, mut line, boot, stamps, scratch, tools, servers } = kept;
    let session = session.filter(|_| fresh).map(|session| &*session.0);
    let Some(words) = say(&mut line, live, &prompt.text, session, schema) else { return Ok(None) };
    running.limit(launch.model.limits);
    running.write(&words);
    let answers_by = WarmAttempt::answers_by(launch.model.limits.startup);
    Ok(Some((running, WarmAttempt { line, boot, stamps, scratch, tools, servers, cold: None, answers_by })))
}

/// Calls an HTTP upstream.
fn call(shared: &Shared, api: &Api, turn: &Turn, model: &Model) -> Result<UpstreamCall, Failure> {
    let file = match &model.agent_file {
        Some(name) => agent_file::read(&model.repo, name)?,
        None => None,
    };
    let standing: Vec<String> = file.into_iter().chain(model.system_prompt.clone()).collect();
    let standing = (!standing.is_empty()).then(|| standing.join("\n\n"));
    let turn = bounded(turn, model);
    let body = upstream::request(&turn, standing.as_deref(), model.upstream.as_deref());
    let asked: Vec<String> = turn.messages.iter().map(prompt::message_text).collect();
    let facts = RequestFacts { prompt: asked.join("\n"), choices: turn.options.choices.unwrap_or(1) };
    Ok(shared.upstream.call(api, body, &[], UpstreamTimeouts::in_all(model.limits.total), facts))
}
