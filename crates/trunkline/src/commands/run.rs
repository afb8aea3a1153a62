//! `trunkline run`: one turn from the terminal. The answer goes to stdout as it arrives, everything else to stderr.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use trunkline_core::event::{Event, SessionId};
use trunkline_core::turn::{Message, Role, Surface, Turn};
use trunkline_engine::{Caps, Engine, Follow};

use super::gateway::GatewayClient;
use super::progress::ProgressLine;
use super::runs::{error_message, find};
use super::sessions::SavedState;
use crate::config::Environment;
use crate::engine_args::EngineArgs;
use crate::exit::CliExit;
use crate::output::{say, tell};
use crate::repl::plain::PlainFilter;
use crate::repl::tool::{RunningTools, call};
use crate::setup::{LoadedConfig, runtime};
use crate::signals::StopSignals;
use crate::wording::{ModelListCommand, Refusal, cut_short, failed, worktree_result};

const INTERRUPTED: &str = "· interrupted";

/// Run one task on a model and show its progress
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trunkline run -m codex \"why does the build fail?\"   answer on stdout, progress on stderr
  git diff | trunkline run -m claude -                 the task from stdin
  trunkline run -m codex --detach \"fix it\"            hand it to the running gateway, print its run id
  trunkline run --attach 01a1e21c                      watch a run of the gateway")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    engine_args: EngineArgs,
    /// Model, one of `trunkline models`
    #[arg(long, short, required_unless_present = "attach")]
    model: Option<String>,
    /// Continue a session that an earlier run reported
    #[arg(long)]
    session: Option<String>,
    /// Hand the task to the gateway of this state folder, and print the run id
    #[arg(long)]
    detach: bool,
    /// Show a run from its beginning and follow it to its end; Ctrl+C does not stop the run
    #[arg(long, value_name = "RUN", conflicts_with_all = ["model", "session", "detach", "task"])]
    attach: Option<String>,
    /// The task; `-` or nothing reads it from stdin
    task: Option<String>,
}

impl RunArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(run) = &self.attach {
            return runtime()?.block_on(attach(&self.engine_args, run));
        }
        let model = self.model.unwrap_or_default();
        let task = match self.task {
            Some(task) if task != "-" => task,
            None if io::stdin().is_terminal() => String::new(),
            Some(_) | None => task_from_stdin()?,
        };
        if task.trim().is_empty() {
            tell(format_args!("trunkline: the task is empty: trunkline run -m {model} \"…\""));
            return Ok(CliExit::Arguments.into());
        }
        if self.detach {
            return runtime()?.block_on(detach(&self.engine_args, &model, &task, self.session.as_deref()));
        }
        let loaded = LoadedConfig::new(&self.engine_args)?;
        if !loaded.config.models.knows(&model) {
            tell(format_args!("trunkline: {}", loaded.config.unknown_model(&model, &loaded.environment)));
            return Ok(CliExit::General.into());
        }
        let turn = Turn {
            model,
            messages: vec![Message::new(Role::User, task)],
            session: self.session.map(|session| SessionId(session.into())),
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

/// Reads all of stdin. Bytes that are not UTF-8, as in the diff of a binary file, are replaced.
pub(crate) fn task_from_stdin() -> Result<String> {
    let mut task = Vec::new();
    io::stdin().lock().read_to_end(&mut task).context("cannot read the task from stdin")?;
    Ok(String::from_utf8_lossy(&task).into_owned())
}

/// A step of a turn, for observers.
pub(crate) enum TurnStep<'a> {
    /// It did not start.
    Refused(&'a Refusal),
    /// A signal arrived before it started.
    Withdrawn,
    Event(&'a Event),
    /// A signal arrived while it was running.
    Interrupted,
}

/// Runs one turn until it ends or a signal arrives. Prints the answer on stdout and everything else on stderr, and passes
/// every step to `observe`.
pub(crate) async fn show(
    engine: &Engine,
    turn: Turn,
    signals: &mut StopSignals,
    mut observe: impl FnMut(TurnStep<'_>),
) -> Result<ExitCode> {
    let name = turn.model.clone();
    let started = tokio::select! {
        started = engine.start(turn) => started,
        signal = signals.next() => {
            observe(TurnStep::Withdrawn);
            tell(INTERRUPTED);
            return Ok(CliExit::from(signal).into());
        }
    };
    let mut run = match started {
        Ok(run) => run,
        Err(error) => {
            let refusal = Refusal::of(&name, error, ModelListCommand::Shell);
            observe(TurnStep::Refused(&refusal));
            if let Some(tried) = refusal.tried {
                tell(format_args!("· {tried}"));
            }
            tell(format_args!("trunkline: {}", refusal.message));
            return Ok(refusal.exit.into());
        }
    };
    let mut printer = RunPrinter::default();
    let mut progress = ProgressLine::new();
    loop {
        let event = tokio::select! {
            event = run.next() => event,
            () = progress.due(), if !printer.answer.open => {
                progress.show(run.phase());
                continue;
            }
            signal = signals.next() => {
                // Dropped first, so that the run is cancelled before anything else is done.
                drop(run);
                progress.clear();
                observe(TurnStep::Interrupted);
                printer.answer.end()?;
                tell(INTERRUPTED);
                return Ok(CliExit::from(signal).into());
            }
        };
        progress.clear();
        let Some(event) = event else { return Ok(printer.code()) };
        observe(TurnStep::Event(&event));
        printer.print(event, run.provider())?;
    }
}

/// Hands a task to the gateway, which runs it without us.
async fn detach(engine_args: &EngineArgs, model: &str, task: &str, session: Option<&str>) -> Result<ExitCode> {
    let environment = Environment::read()?;
    let state = engine_args.state_folder(&environment);
    let gateway = GatewayClient::required(&state, &environment)?;
    let body = json!({"model": model, "messages": [{"role": "user", "content": task}], "session_id": session});
    let headers = [("prefer", "respond-async")];
    let reply = gateway.send("POST", "/v1/chat/completions", &headers, &body.to_string()).await;
    let reply = reply.map_err(|error| gateway.no_answer(&state, error))?;
    let accepted: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    match accepted["id"].as_str().filter(|_| reply.status == 202) {
        Some(run) => {
            say(run)?;
            tell(format_args!("· trunkline run --attach {run} shows it"));
            Ok(ExitCode::SUCCESS)
        }
        None => {
            tell(format_args!("trunkline: {}", error_message(&reply.body)));
            Ok(CliExit::General.into())
        }
    }
}

/// Shows a run that another process drives.
async fn attach(engine_args: &EngineArgs, name: &str) -> Result<ExitCode> {
    let mut signals = StopSignals::listen()?;
    let saved = SavedState::open(engine_args).await?;
    let run = find(saved.store.as_ref(), name).await?;
    let Some(store) = &saved.store else { return Ok(ExitCode::SUCCESS) };
    let mut follow = Follow::kept(&saved.state, store.clone(), &run, 0);
    let (mut printer, mut provider) = (RunPrinter::default(), run.provider.unwrap_or_default());
    loop {
        let entry = tokio::select! {
            entry = follow.next() => entry,
            _ = signals.next() => {
                printer.answer.end()?;
                tell(format_args!("· the run continues; trunkline run --attach {} shows it again", run.id));
                return Ok(ExitCode::SUCCESS);
            }
        };
        let Some(entry) = entry else { return Ok(printer.code()) };
        if let Some(by) = entry.by {
            provider = by.provider;
        }
        printer.print(entry.event, &provider)?;
    }
}

/// Prints the events of a run: the answer on stdout, everything else on stderr.
#[derive(Default)]
struct RunPrinter {
    answer: AnswerPrinter,
    session: Option<SessionId>,
    tools: RunningTools,
    failed: bool,
}

impl RunPrinter {
    fn print(&mut self, event: Event, provider: &str) -> Result<()> {
        let answer = &mut self.answer;
        match event {
            Event::Text { delta } => answer.text(&delta)?,
            Event::Started { session: Some(session), .. } if self.session.as_ref() != Some(&session) => {
                tell(format_args!("· session {session}"));
                self.session = Some(session);
            }
            Event::ToolStarted { id, name, input } => {
                answer.pause()?;
                tell(format_args!("· {}", call(&name, &input)));
                self.tools.started(&id, &name, &input);
            }
            Event::ToolFinished { id, ok: false, output } => {
                tell(format_args!("· {}", self.tools.failed(&id, &output)));
            }
            Event::Notice { message } => tell(format_args!("· {message}")),
            Event::Workspace(receipt) => tell(format_args!("\n· {}", worktree_result(&receipt))),
            Event::Finished(finished) => {
                answer.end()?;
                if let Some(why) = cut_short(finished.finish) {
                    tell(format_args!("· {why}"));
                }
            }
            Event::Failed(failure) => {
                answer.end()?;
                tell(format_args!("trunkline: {}", failed(provider, &failure)));
                self.failed = true;
            }
            Event::Started { .. }
            | Event::Thinking { .. }
            | Event::ToolFinished { .. }
            | Event::ToolCall { .. }
            | Event::Unknown { .. }
            | Event::Attempted(_) => {}
        }
        Ok(())
    }

    fn code(&self) -> ExitCode {
        if self.failed { CliExit::Provider.into() } else { ExitCode::SUCCESS }
    }
}

/// Prints the answer on stdout as it arrives.
#[derive(Default)]
struct AnswerPrinter {
    filter: PlainFilter,
    /// Line breaks that are held back until text follows.
    held: String,
    /// Text was printed, and its last line is not terminated.
    open: bool,
    /// A tool ran after the last text: a blank line is due.
    paused: bool,
}

impl AnswerPrinter {
    fn text(&mut self, delta: &str) -> io::Result<()> {
        let text = self.filter.push(delta);
        let text = if self.open { text.as_str() } else { text.trim_start_matches('\n') };
        let trimmed = text.trim_end_matches('\n');
        if trimmed.is_empty() {
            self.held.push_str(text);
            return Ok(());
        }
        let gap = if std::mem::take(&mut self.paused) { "\n" } else { "" };
        let mut stdout = io::stdout();
        write!(stdout, "{gap}{}{trimmed}", std::mem::take(&mut self.held))?;
        self.held.push_str(&text[trimmed.len()..]);
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
