//! `trunkline agent`: a conversation with a model, in the terminal or from a pipe, or one task of it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use trunkline_agent::tools::Shell;
use trunkline_core::event::SessionId;
use trunkline_core::failure::Category;
use trunkline_core::model::AGENT;
use trunkline_engine::{Caps, Engine};

use super::run::{Step, show, task_from_stdin};
use crate::Exit;
use crate::cli::Places;
use crate::repl::{Entry, Index, Named, Repl, Talk};
use crate::setup::{Loaded, StopSignals, keepers, runtime, tell};

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
    /// Let the built-in agent read files below this folder, too; may be given several times. What it changes stays in
    /// the folder it works in
    #[arg(long, value_name = "DIR")]
    allow_read: Vec<PathBuf>,
    /// One task instead of a conversation; `-` reads it from stdin
    #[arg(long = "print", short, value_name = "TASK", allow_hyphen_values = true)]
    prompt: Option<String>,
}

/// The conversation to go on with.
enum Resumed {
    Known(Entry),
    /// Perhaps the model itself knows it, from another surface.
    Unknown(SessionId),
}

impl Agent {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut loaded = Loaded::new(&self.places)?;
        if !self.allow_read.is_empty() {
            let Some(folders) = self.readable(&loaded) else { return Ok(Exit::Arguments.into()) };
            loaded.config.models = loaded.config.models.clone().reading(&folders);
        }
        let resumed = self.resumed(&loaded)?;
        let model = match (&self.model, &resumed) {
            (Some(model), _) => model.clone(),
            (None, Some(Resumed::Known(entry))) => entry.model.clone(),
            (None, Some(Resumed::Unknown(_)) | None) => AGENT.to_owned(),
        };
        let resume = self.resume_command(&loaded);
        let task = match self.prompt.as_deref() {
            Some("-") => Some(task_from_stdin()?),
            task => task.map(str::to_owned),
        };
        if task.is_some() && !loaded.config.models.knows(&model) {
            tell(format_args!("trunkline: {}", loaded.config.unknown_model(&model, &loaded.around)));
            return Ok(Exit::General.into());
        }
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
            if !self.allow_read.is_empty() && !engine.models().is_agent(&model) {
                tell(format_args!("· --allow-read is for the built-in agent; {model} has rules of its own"));
            }
            match resumed {
                Some(Resumed::Known(entry)) => {
                    notes.push(format!("Going on with: {}", entry.title));
                    // Whoever wants an answer must know what it is founded on, a script too.
                    if let Some(note) = talk.resume(entry, &model) {
                        tell(format_args!("· {note}"));
                    }
                }
                Some(Resumed::Unknown(session)) => {
                    notes.push(format!("Going on with: {session}"));
                    talk.resume_unknown(&model, session);
                }
                None => {}
            }
            engine.sweep().await;
            let outcome = match task {
                Some(task) => one_task(&engine, talk, &model, &task).await,
                None => {
                    let shell = Shell { keepers, env: loaded.around.env.clone(), confinement: None };
                    match Repl::new(&engine, shell, talk, model, &loaded) {
                        Ok(repl) => repl.run(&notes, &resume).await,
                        Err(error) => Err(error.into()),
                    }
                }
            };
            engine.shutdown().await;
            outcome
        })
    }

    /// The folders that may be read besides; none, where one of them is no folder.
    fn readable(&self, loaded: &Loaded) -> Option<Vec<PathBuf>> {
        let mut folders = Vec::new();
        for written in &self.allow_read {
            let folder = loaded.around.path(&written.to_string_lossy(), &loaded.around.folder);
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

    /// What finds a conversation again; its name is to follow.
    fn resume_command(&self, loaded: &Loaded) -> String {
        let state = self.places.state.as_ref().map(|_| format!("--state {} ", quoted(&loaded.state.to_string_lossy())));
        format!("trunkline agent {}--resume", state.unwrap_or_default())
    }

    fn resumed(&self, loaded: &Loaded) -> Result<Option<Resumed>> {
        let index = Index::new(&loaded.state);
        let folder = &loaded.around.folder;
        let entry = match &self.resume {
            None => return Ok(None),
            Some(Some(name)) => match index.named(name) {
                Named::One(entry) => entry,
                Named::Several(entries) => {
                    let rows = entries.iter().map(|entry| format!("\n  {}  {}", entry.session, entry.title));
                    bail!("several sessions begin with {name}; which one?{}", rows.collect::<String>())
                }
                Named::Nobody => return Ok(Some(Resumed::Unknown(SessionId(name.clone())))),
            },
            Some(None) => index.newest(folder, self.model.as_deref()).with_context(|| {
                let with = self.model.as_ref().map(|model| format!(" with {model}")).unwrap_or_default();
                format!("nothing to resume: no conversation{with} in {} can be gone on with", folder.display())
            })?,
        };
        Ok(Some(Resumed::Known(entry)))
    }
}

/// As a shell takes it for one word.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | ',' | ':' | '+' | '@' | '%');
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// One turn, told as `trunkline run` tells it.
async fn one_task(engine: &Engine, mut talk: Talk, model: &str, task: &str) -> Result<ExitCode> {
    if task.trim().is_empty() {
        tell("trunkline: what is the task? trunkline agent -p \"…\"");
        return Ok(Exit::Arguments.into());
    }
    let mut signals = StopSignals::listen_with_hangup()?;
    let turn = talk.ask(model, task);
    let hear = |step: Step<'_>| match step {
        Step::Refused(refusal) => talk.withdraw(refusal.category, &refusal.message),
        Step::Withdrawn => talk.withdraw(Category::Cancelled, "interrupted"),
        Step::Event(event) => talk.hear(event),
        Step::Interrupted => talk.interrupt(),
    };
    let outcome = show(engine, turn, &mut signals, hear).await;
    // Whoever read the answer is gone: that, too, ends it.
    talk.interrupt();
    talk.troubles().iter().for_each(|trouble| tell(format_args!("· {trouble}")));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_as_one_word() {
        for (folder, word) in
            [("/a/b-c.d", "/a/b-c.d"), ("/a b", "'/a b'"), ("/it's", r"'/it'\''s'"), ("$HOME", "'$HOME'")]
        {
            assert_eq!(quoted(folder), word);
        }
    }
}
