//! `trunkline run`: one turn from the terminal. The answer goes to stdout as it comes, everything else to stderr.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::turn::{Message, Role, Surface, Turn};
use trunkline_engine::{Caps, Engine};

use super::doing::Doing;
use crate::Exit;
use crate::cli::Places;
use crate::repl::plain::{Plain, first_line};
use crate::repl::tool::call;
use crate::setup::{Loaded, StopSignals, runtime, say, tell};
use crate::wording::{Models, Refusal, cut_short, failed, left};

const INTERRUPTED: &str = "· interrupted";

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
            let outcome = show(&engine, turn, &mut signals, |_| {}).await;
            engine.shutdown().await;
            outcome
        })
    }
}

/// All of stdin. What is not text in it, as in the diff of a binary file, is no reason not to read the rest.
pub(crate) fn task_from_stdin() -> Result<String> {
    let mut task = Vec::new();
    io::stdin().lock().read_to_end(&mut task).context("cannot read the task from stdin")?;
    Ok(String::from_utf8_lossy(&task).into_owned())
}

/// What became of a turn, step by step.
pub(crate) enum Step<'a> {
    /// It did not start.
    Refused(&'a Refusal),
    /// A signal came before it had started.
    Withdrawn,
    Event(&'a Event),
    /// A signal came while it ran.
    Interrupted,
}

/// Runs one turn, until a signal comes, and tells of it: the answer on stdout, everything else on stderr. `hear` gets every
/// step, too.
pub(crate) async fn show(
    engine: &Engine,
    turn: Turn,
    signals: &mut StopSignals,
    mut hear: impl FnMut(Step<'_>),
) -> Result<ExitCode> {
    let name = turn.model.clone();
    let started = tokio::select! {
        started = engine.start(turn) => started,
        _ = signals.next() => {
            hear(Step::Withdrawn);
            tell(INTERRUPTED);
            return Ok(Exit::General.into());
        }
    };
    let mut run = match started {
        Ok(run) => run,
        Err(error) => {
            let refusal = Refusal::of(&name, error, Models::Command);
            hear(Step::Refused(&refusal));
            if let Some(tried) = refusal.tried {
                tell(format_args!("· {tried}"));
            }
            tell(format_args!("trunkline: {}", refusal.message));
            return Ok(refusal.exit.into());
        }
    };
    let mut answer = Answer::default();
    let mut code = ExitCode::SUCCESS;
    let mut told = None;
    let mut doing = Doing::new();
    loop {
        let event = tokio::select! {
            event = run.next() => event,
            () = doing.due(), if !answer.open => {
                doing.show(run.phase());
                continue;
            }
            _ = signals.next() => {
                // Dropped first: whatever runs is asked to stop before anything else is done.
                drop(run);
                doing.clear();
                hear(Step::Interrupted);
                answer.end()?;
                tell(INTERRUPTED);
                return Ok(Exit::General.into());
            }
        };
        doing.clear();
        let Some(event) = event else { return Ok(code) };
        hear(Step::Event(&event));
        match event {
            Event::Text { delta } => answer.text(&delta)?,
            Event::Started { session: Some(session), .. } if told.as_ref() != Some(&session) => {
                tell(format_args!("· session {session}"));
                told = Some(session);
            }
            Event::ToolStarted { name, input, .. } => {
                answer.pause()?;
                tell(format_args!("· {}", call(&name, &input)));
            }
            Event::ToolFinished { ok: false, output, .. } => {
                tell(format_args!("· failed: {}", first_line(&output, 200)));
            }
            Event::Notice { message } => tell(format_args!("· {message}")),
            Event::Workspace(receipt) => tell(format_args!("\n· {}", left(&receipt))),
            Event::Finished(finished) => {
                answer.end()?;
                if let Some(why) = cut_short(finished.finish) {
                    tell(format_args!("· {why}"));
                }
            }
            Event::Failed(failure) => {
                answer.end()?;
                tell(format_args!("trunkline: {}", failed(run.provider(), &failure)));
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
