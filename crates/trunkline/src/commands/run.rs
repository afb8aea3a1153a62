//! `trunkline run`: one turn from the terminal. The answer goes to stdout as it comes, everything else to stderr.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::turn::{Message, Role, Surface, Turn};
use trunkline_engine::{Caps, Engine};

use crate::Exit;
use crate::cli::Places;
use crate::repl::plain::{Plain, first_line, plain};
use crate::repl::tool::call;
use crate::setup::{Loaded, StopSignals, runtime, say};
use crate::wording::{Refusal, cut_short, failed, left};

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
        let task = match self.task {
            Some(task) if task != "-" => task,
            None if io::stdin().is_terminal() => bail!("what is the task? trunkline run -m {} \"…\"", self.model),
            Some(_) | None => task_from_stdin()?,
        };
        let loaded = Loaded::new(&self.places)?;
        let turn = Turn {
            model: self.model,
            messages: vec![Message::new(Role::User, task)],
            session: self.session.map(SessionId),
            surface: Surface::Run,
            ..Turn::default()
        };
        let runtime = runtime()?;
        runtime.block_on(async {
            let mut signals = StopSignals::listen()?;
            let engine = loaded.engine(Caps::default(), None)?;
            engine.remember(&loaded.state).await;
            engine.sweep().await;
            let outcome = tokio::select! {
                outcome = show(&engine, turn, |_| {}) => outcome,
                _ = signals.next() => Ok(Exit::General.into()),
            };
            engine.shutdown().await;
            outcome
        })
    }
}

/// All of stdin.
pub(crate) fn task_from_stdin() -> Result<String> {
    let mut task = String::new();
    io::stdin().lock().read_to_string(&mut task).context("cannot read the task from stdin")?;
    Ok(task)
}

/// Runs one turn and tells of it: the answer on stdout, everything else on stderr. `hear` gets every event, too.
pub(crate) async fn show(engine: &Engine, turn: Turn, mut hear: impl FnMut(&Event)) -> Result<ExitCode> {
    let name = turn.model.clone();
    let mut run = match engine.start(turn).await {
        Ok(run) => run,
        Err(error) => {
            let refusal = Refusal::of(&name, error);
            if let Some(tried) = refusal.tried {
                eprintln!("· {tried}");
            }
            eprintln!("trunkline: {}", refusal.message);
            return Ok(refusal.exit.into());
        }
    };
    let mut answer = Answer::default();
    let mut code = ExitCode::SUCCESS;
    let mut told = None;
    while let Some(event) = run.next().await {
        hear(&event);
        match event {
            Event::Text { delta } => answer.text(&delta)?,
            Event::Started { session: Some(session), .. } if told.as_ref() != Some(&session) => {
                eprintln!("· session {session}");
                told = Some(session);
            }
            Event::ToolStarted { name, input, .. } => {
                answer.pause()?;
                eprintln!("· {}", call(&name, &input));
            }
            Event::ToolFinished { ok: false, output, .. } => eprintln!("· failed: {}", first_line(&output, 200)),
            Event::Notice { message } => eprintln!("· {}", plain(&message)),
            Event::Workspace(receipt) => eprintln!("\n· {}", left(&receipt)),
            Event::Finished(finished) => {
                answer.end()?;
                if let Some(why) = cut_short(finished.finish) {
                    eprintln!("· {why}");
                }
            }
            Event::Failed(failure) => {
                answer.end()?;
                eprintln!("trunkline: {}", failed(run.provider(), &failure));
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

/// The answer on stdout, as it comes.
#[derive(Default)]
struct Answer {
    filter: Plain,
    /// Line ends, held back until there is something behind them.
    held: String,
    /// Something was said, and its line not ended.
    open: bool,
    /// A tool ran since something was said: what comes next stands apart.
    paused: bool,
}

impl Answer {
    fn text(&mut self, delta: &str) -> io::Result<()> {
        let text = self.filter.push(delta);
        let text = if self.open { text.as_str() } else { text.trim_start_matches('\n') };
        let said = text.trim_end_matches('\n');
        if said.is_empty() {
            self.held.push_str(text);
            return Ok(());
        }
        let apart = if std::mem::take(&mut self.paused) { "\n" } else { "" };
        let mut stdout = io::stdout();
        write!(stdout, "{apart}{}{said}", std::mem::take(&mut self.held))?;
        self.held.push_str(&text[said.len()..]);
        self.open = true;
        stdout.flush()
    }

    fn pause(&mut self) -> io::Result<()> {
        self.paused |= self.open;
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.held.clear();
        if std::mem::take(&mut self.open) { say("") } else { Ok(()) }
    }
}
