//! `trunkline agent`: a conversation with a model, in the terminal or from a pipe, or one task of it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use trunkline_agent::tools::{Shell, Toolbox};
use trunkline_core::event::SessionId;
use trunkline_core::model::AGENT;
use trunkline_core::provider::Permissions;
use trunkline_engine::{Caps, Engine};

use super::run::{show, task_from_stdin};
use crate::Exit;
use crate::cli::Places;
use crate::repl::{Index, Repl, Talk};
use crate::setup::{Loaded, StopSignals, keepers, runtime};

/// For a newcomer, who may take its answers for a model's.
const SCRIPTED: &str = "No LLM is set, so a scripted one answers: try \"hello world\". LLM_BASE_URL, LLM_AUTH_TOKEN and LLM_DEFAULT_MODEL set one.";

/// Talk to the built-in coding agent, or to any other model, in this folder
///
/// Type a message and press Enter. The agent reads, writes and edits files here and runs commands; what it does is shown
/// as it goes. From a pipe, each line is a message.
#[derive(Debug, Args)]
#[command(after_help = "\
In a conversation:
  /clear          forget it and start anew        !COMMAND    run a shell command, past the model
  /model [NAME]   show the models, or change      /help       everything else
  Ctrl+C          stop the answer; on an empty line, leave

Examples:
  trunkline agent                                   a conversation
  trunkline agent --model codex                     the same, with Codex
  trunkline agent --resume                          go on with the latest one of this folder
  trunkline agent -p \"why does the build fail?\"     one task: only the answer on stdout
  git diff | trunkline agent -p -                   one task from stdin
  printf '%s\\n' 'look around' 'now fix it' | trunkline agent")]
pub(crate) struct Agent {
    #[command(flatten)]
    places: Places,
    /// The model to talk to, one of `trunkline models` [default: agent, or that of the session]
    #[arg(long, short)]
    model: Option<String>,
    /// Go on with an earlier conversation: this one, or the latest of this folder
    #[arg(long, value_name = "SESSION", num_args = 0..=1)]
    resume: Option<Option<String>>,
    /// One task instead of a conversation; `-` reads it from stdin
    #[arg(long = "print", short, value_name = "TASK", allow_hyphen_values = true)]
    prompt: Option<String>,
}

/// The conversation to go on with.
struct Resumed {
    model: Option<String>,
    session: SessionId,
    title: Option<String>,
}

impl Agent {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = Loaded::new(&self.places)?;
        let resumed = self.resumed(&loaded)?;
        let model = self.model.or_else(|| resumed.as_ref()?.model.clone()).unwrap_or_else(|| AGENT.to_owned());
        let task = match self.prompt.as_deref() {
            Some("-") => Some(task_from_stdin()?),
            task => task.map(str::to_owned),
        };
        let runtime = runtime()?;
        runtime.block_on(async {
            let keepers = keepers()?;
            let engine = loaded.engine_on(keepers.clone(), Caps::default(), None)?;
            engine.remember(&loaded.state).await;
            let mut talk = Talk::new(&loaded.state, &loaded.around.folder, engine.secrets().clone());
            let mut notes = Vec::new();
            if model == AGENT && loaded.config.wants_mock() {
                notes.push(SCRIPTED.to_owned());
            }
            if let Some(Resumed { session, title, .. }) = resumed {
                notes.push(format!("Going on with: {}", title.as_deref().unwrap_or(&session.0)));
                talk.resume(&model, session, title);
            }
            let outcome = match task {
                Some(task) => one_task(&engine, talk, &model, &task).await,
                None => {
                    engine.sweep().await;
                    let shell = Shell { keepers, env: loaded.around.env.clone() };
                    let tools = Toolbox::new(loaded.around.folder.clone(), Permissions::Full, shell);
                    let repl = Repl::new(&engine, tools, talk, model, &loaded.around, &loaded.state)?;
                    repl.run(&notes).await
                }
            };
            engine.shutdown().await;
            outcome
        })
    }

    fn resumed(&self, loaded: &Loaded) -> Result<Option<Resumed>> {
        let index = Index::new(&loaded.state);
        let folder = &loaded.around.folder;
        let entry = match &self.resume {
            None => return Ok(None),
            Some(Some(name)) => match index.named(name) {
                Some(entry) => entry,
                // Perhaps the model itself knows it, from another surface.
                None => {
                    let session = SessionId(name.clone());
                    return Ok(Some(Resumed { model: None, session, title: None }));
                }
            },
            Some(None) => index.newest(folder, self.model.as_deref()).with_context(|| {
                let with = self.model.as_ref().map(|model| format!(" with {model}")).unwrap_or_default();
                format!("nothing to resume: no conversation{with} in {} can be gone on with", folder.display())
            })?,
        };
        Ok(Some(Resumed { model: Some(entry.model), session: entry.session, title: Some(entry.title) }))
    }
}

/// One turn, told as `trunkline run` tells it.
async fn one_task(engine: &Engine, mut talk: Talk, model: &str, task: &str) -> Result<ExitCode> {
    if task.trim().is_empty() {
        eprintln!("trunkline: what is the task? trunkline agent -p \"…\"");
        return Ok(Exit::Arguments.into());
    }
    let mut signals = StopSignals::listen()?;
    engine.sweep().await;
    let turn = talk.ask(model, task);
    let outcome = tokio::select! {
        outcome = show(engine, turn, |event| talk.hear(event)) => outcome,
        _ = signals.next() => Ok(Exit::General.into()),
    };
    talk.interrupt();
    talk.troubles().iter().for_each(|trouble| eprintln!("· {trouble}"));
    outcome
}
