//! `trunkline run`: one turn from the terminal. The answer goes to stdout as it comes, everything else to stderr.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::failure::Category;
use trunkline_core::turn::{Message, Role, Turn};
use trunkline_engine::{Caps, Engine, StartError};

use crate::Exit;
use crate::cli::Places;
use crate::setup::{Loaded, StopSignals, runtime, say};

/// Run one task on a model and show its progress
#[derive(Debug, Args)]
#[command(after_help = "Example: trunkline run -m codex \"why does the build fail?\"")]
pub(crate) struct Run {
    #[command(flatten)]
    places: Places,
    /// The model, one of `trunkline models`
    #[arg(long, short)]
    model: String,
    /// Go on with a session that an earlier run reported
    #[arg(long)]
    session: Option<String>,
    /// What to do; `-` or nothing reads it from stdin
    task: Option<String>,
}

impl Run {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let task = match self.task.as_deref() {
            Some(task) if task != "-" => task.to_owned(),
            Some(_) | None => {
                if io::stdin().is_terminal() {
                    bail!("what is the task? trunkline run -m {} \"…\"", self.model);
                }
                let mut task = String::new();
                io::stdin().lock().read_to_string(&mut task).context("cannot read the task from stdin")?;
                task
            }
        };
        let loaded = Loaded::new(&self.places)?;
        let turn = Turn {
            model: self.model,
            messages: vec![Message::new(Role::User, task)],
            session: self.session.map(SessionId),
            ..Turn::default()
        };
        let runtime = runtime()?;
        runtime.block_on(async {
            let mut signals = StopSignals::listen()?;
            let engine = loaded.engine(Caps::default(), None)?;
            engine.sweep().await;
            let outcome = tokio::select! {
                outcome = show(&engine, turn) => outcome,
                () = signals.next() => Ok(Exit::General.into()),
            };
            engine.shutdown().await;
            outcome
        })
    }
}

async fn show(engine: &Engine, turn: Turn) -> Result<ExitCode> {
    let name = turn.model.clone();
    let mut run = match engine.start(turn).await {
        Ok(run) => run,
        Err(StartError::UnknownModel { near }) if near.is_empty() => {
            bail!("unknown model {name:?}; see: trunkline models")
        }
        Err(StartError::UnknownModel { near }) => bail!("unknown model {name:?}; did you mean {}?", near.join(" or ")),
        Err(StartError::Failed { failure, attempts, .. }) => {
            if attempts.len() > 1 {
                let tried =
                    attempts.iter().map(|a| format!("{} ({})", a.model, a.category.map_or("ok", Category::name)));
                eprintln!("· tried {}", tried.collect::<Vec<_>>().join(", "));
            }
            eprintln!(
                "trunkline: {failure}{}",
                failure.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default()
            );
            return Ok(Exit::Provider.into());
        }
        Err(error @ StartError::Unavailable { .. }) => {
            eprintln!("trunkline: {error}");
            return Ok(Exit::Provider.into());
        }
        Err(error @ StartError::Busy { .. }) => return Err(error.into()),
    };
    let mut stdout = io::stdout();
    let mut code = ExitCode::SUCCESS;
    let mut told = None;
    while let Some(event) = run.next().await {
        match event {
            Event::Text { delta } => {
                stdout.write_all(delta.as_bytes())?;
                stdout.flush()?;
            }
            Event::Started { session: Some(session), .. } if told.as_ref() != Some(&session) => {
                eprintln!("· session {session}");
                told = Some(session);
            }
            Event::ToolStarted { name, input, .. } => eprintln!("· {name} {input}"),
            Event::ToolFinished { ok: false, output, .. } => {
                eprintln!("· failed: {}", output.lines().next().unwrap_or_default())
            }
            Event::Notice { message } => eprintln!("· {message}"),
            Event::Workspace(receipt) => match &receipt.branch {
                Some(branch) => eprintln!(
                    "\n· {} (+{} -{}) on branch {branch}",
                    if receipt.files_changed == 1 {
                        "1 file changed".to_owned()
                    } else {
                        format!("{} files changed", receipt.files_changed)
                    },
                    receipt.insertions,
                    receipt.deletions
                ),
                None => eprintln!("\n· nothing changed"),
            },
            Event::Finished(_) => say("")?,
            Event::Failed(failure) => {
                eprintln!("\ntrunkline: {} failed ({}): {failure}", run.provider(), failure.category.name());
                code = Exit::Provider.into();
            }
            Event::Started { .. }
            | Event::Thinking { .. }
            | Event::ToolFinished { .. }
            | Event::ToolCall { .. }
            | Event::Unknown { .. }
            | Event::Attempted(_) => {}
        }
    }
    Ok(code)
}
