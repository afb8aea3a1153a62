//! `trunkline agent`: a conversation with a model, in the terminal or from a pipe, or a single task.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use trunkline_agent::tools::Shell;
use trunkline_core::event::SessionId;
use trunkline_core::failure::Category;
use trunkline_core::model::AGENT;
use trunkline_engine::{Caps, Engine};

use super::run::{TurnStep, show, task_from_stdin};
use crate::engine_args::EngineArgs;
use crate::exit::CliExit;
use crate::output::tell;
use crate::repl::{ConversationIndex, IndexMatch, Repl, ReplConversation, SavedConversation};
use crate::setup::{LoadedConfig, keepers, runtime};
use crate::shell::quoted;
use crate::signals::StopSignals;

/// Shown to new users, who might mistake scripted answers for those of a model.
const SCRIPTED: &str = "No LLM is configured, so a scripted one answers: try \"hello world\". Set LLM_BASE_URL, LLM_AUTH_TOKEN and LLM_DEFAULT_MODEL to use a real one.";

/// Talk to the built-in coding agent, or to any other model, in this folder
///
/// Type a message and press Enter. The agent reads, writes and edits files in this folder and runs commands; each step is
/// shown as it happens. From a pipe, each line is a message.
#[derive(Debug, Args)]
#[command(after_help = "\
In a conversation:
  /clear          forget it, start a new one      !COMMAND    run a shell command yourself
  /model [NAME]   show the models, or change      /help       everything else
  Ctrl+C          stop the answer; on an empty line, leave

Examples:
  trunkline agent                                   a conversation
  trunkline agent --model codex                     the same, with Codex
  trunkline agent --resume                          continue the latest conversation of this folder
  trunkline agent -p \"why does the build fail?\"     one task: only the answer on stdout
  git diff | trunkline agent -p -                   one task from stdin
  printf '%s\\n' 'look around' 'now fix it' | trunkline agent")]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    engine_args: EngineArgs,
    /// Model to talk to, one of `trunkline models` [default: agent, or the model of the session]
    #[arg(long, short)]
    model: Option<String>,
    /// Continue an earlier conversation: the given one, or the latest of this folder
    #[arg(long, value_name = "SESSION", num_args = 0..=1)]
    resume: Option<Option<String>>,
    /// Let the built-in agent also read files below this folder; can be repeated. It still changes files only in the
    /// current folder
    #[arg(long, value_name = "DIR")]
    allow_read: Vec<PathBuf>,
    /// One task instead of a conversation; `-` reads it from stdin
    #[arg(long = "print", short, value_name = "TASK", allow_hyphen_values = true)]
    prompt: Option<String>,
}

/// Conversation to continue.
enum ResumeTarget {
    Known(SavedConversation),
    /// Not in our index. The model may know it from another surface.
    Unknown(SessionId),
}

impl AgentArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut loaded = LoadedConfig::new(&self.engine_args)?;
        if !self.allow_read.is_empty() {
            let Some(folders) = self.readable(&loaded) else { return Ok(CliExit::Arguments.into()) };
            loaded.config.models = loaded.config.models.clone().reading(&folders);
        }
        let resumed = self.resumed(&loaded)?;
        let model = match (&self.model, &resumed) {
            (Some(model), _) => model.clone(),
            (None, Some(ResumeTarget::Known(entry))) => entry.model.clone(),
            (None, Some(ResumeTarget::Unknown(_)) | None) => AGENT.to_owned(),
        };
        let resume = self.resume_command(&loaded);
        let task = match self.prompt.as_deref() {
            Some("-") => Some(task_from_stdin()?),
            task => task.map(str::to_owned),
        };
        if task.is_some() && !loaded.config.models.knows(&model) {
            tell(format_args!("trunkline: {}", loaded.config.unknown_model(&model, &loaded.environment)));
            return Ok(CliExit::General.into());
        }
        let runtime = runtime()?;
        runtime.block_on(async {
            let keepers = keepers()?;
            let engine = loaded.engine_on(keepers.clone(), Caps::default(), None)?;
            engine.remember(&loaded.state).await;
            let mut conversation =
                ReplConversation::new(&loaded.state, &loaded.environment.folder, engine.secrets().clone());
            let mut notes = Vec::new();
            if model == AGENT && loaded.config.wants_mock() {
                notes.push(SCRIPTED.to_owned());
            }
            if !self.allow_read.is_empty() && !engine.models().is_agent(&model) {
                tell(format_args!("· --allow-read is for the built-in agent; {model} has its own rules"));
            }
            match resumed {
                Some(ResumeTarget::Known(entry)) => {
                    notes.push(format!("Continuing: {}", entry.title));
                    // On stderr in every mode: it affects the answers, also for a script.
                    if let Some(note) = conversation.resume(entry, &model) {
                        tell(format_args!("· {note}"));
                    }
                }
                Some(ResumeTarget::Unknown(session)) => {
                    notes.push(format!("Continuing: {session}"));
                    conversation.resume_unknown(&model, session);
                }
                None => {}
            }
            engine.sweep().await;
            let outcome = match task {
                Some(task) => one_task(&engine, conversation, &model, &task).await,
                None => {
                    let shell = Shell { keepers, env: loaded.environment.env.clone(), confinement: None };
                    match Repl::new(&engine, shell, conversation, model, &loaded) {
                        Ok(repl) => repl.run(&notes, &resume).await,
                        Err(error) => Err(error.into()),
                    }
                }
            };
            engine.shutdown().await;
            outcome
        })
    }

    /// Folders of `--allow-read`; `None` after an error message if one of them is not a folder.
    fn readable(&self, loaded: &LoadedConfig) -> Option<Vec<PathBuf>> {
        let mut folders = Vec::new();
        for written in &self.allow_read {
            let folder = loaded.environment.path(&written.to_string_lossy(), &loaded.environment.folder);
            match folder.canonicalize() {
                Ok(folder) if folder.is_dir() => folders.push(folder),
                Ok(_) => {
                    tell(format_args!("trunkline: --allow-read {}: not a folder", written.display()));
                    return None;
                }
                Err(error) => {
                    tell(format_args!("trunkline: --allow-read {}: {error}", written.display()));
                    return None;
                }
            }
        }
        Some(folders)
    }

    /// The command that continues a conversation, without its name.
    fn resume_command(&self, loaded: &LoadedConfig) -> String {
        let state =
            self.engine_args.state.as_ref().map(|_| format!("--state {} ", quoted(&loaded.state.to_string_lossy())));
        format!("trunkline agent {}--resume", state.unwrap_or_default())
    }

    fn resumed(&self, loaded: &LoadedConfig) -> Result<Option<ResumeTarget>> {
        let index = ConversationIndex::new(&loaded.state);
        let folder = &loaded.environment.folder;
        let entry = match &self.resume {
            None => return Ok(None),
            Some(Some(name)) => match index.named(name) {
                IndexMatch::One(entry) => entry,
                IndexMatch::Several(entries) => {
                    let rows = entries.iter().map(|entry| format!("\n  {}  {}", entry.session, entry.title));
                    bail!("several sessions begin with {name}; which one?{}", rows.collect::<String>())
                }
                IndexMatch::None => return Ok(Some(ResumeTarget::Unknown(SessionId(name.as_str().into())))),
            },
            Some(None) => index.newest(folder, self.model.as_deref()).with_context(|| {
                let with = self.model.as_ref().map(|model| format!(" with {model}")).unwrap_or_default();
                format!("nothing to resume: no conversation{with} in {} can be continued", folder.display())
            })?,
        };
        Ok(Some(ResumeTarget::Known(entry)))
    }
}

/// Runs one turn, with the output of `trunkline run`.
async fn one_task(engine: &Engine, mut conversation: ReplConversation, model: &str, task: &str) -> Result<ExitCode> {
    if task.trim().is_empty() {
        tell("trunkline: the task is empty: trunkline agent -p \"…\"");
        return Ok(CliExit::Arguments.into());
    }
    let mut signals = StopSignals::listen_with_hangup()?;
    let turn = conversation.ask(model, task);
    let observe = |step: TurnStep<'_>| match step {
        TurnStep::Refused(refusal) => conversation.withdraw(refusal.category, &refusal.message),
        TurnStep::Withdrawn => conversation.withdraw(Category::Cancelled, "interrupted"),
        TurnStep::Event(event) => conversation.record(event),
        TurnStep::Interrupted => conversation.interrupt(),
    };
    let outcome = show(engine, turn, &mut signals, observe).await;
    // A closed stdout also ends the turn.
    conversation.interrupt();
    conversation.take_problems().iter().for_each(|problem| tell(format_args!("· {problem}")));
    outcome
}
