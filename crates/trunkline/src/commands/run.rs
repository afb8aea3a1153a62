//! `trunkline run`: one turn from the terminal. The answer goes to stdout as it comes, everything else to stderr.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use trunkline_core::event::{Event, SessionId};
use trunkline_core::turn::{Message, Role, Surface, Turn};
use trunkline_engine::{Caps, Engine, Follow};

use super::doing::Doing;
use super::gateway::Running;
use super::runs::{find, refusal};
use super::sessions::Remembered;
use crate::Exit;
use crate::cli::Places;
use crate::config::Surroundings;
use crate::repl::plain::Plain;
use crate::repl::tool::{Tools, call};
use crate::setup::{Loaded, StopSignals, runtime, say, tell};
use crate::wording::{Models, Refusal, cut_short, failed, left};

const INTERRUPTED: &str = "· interrupted";

/// Run one task on a model and show its progress
#[derive(Debug, Args)]
#[command(
    after_help = "Examples: trunkline run -m codex \"why does the build fail?\"\n          trunkline run -m codex --detach \
    \"mend it\"\n          trunkline run --attach 01a1e21c"
)]
pub(crate) struct Run {
    #[command(flatten)]
    places: Places,
    /// The model, one of `trunkline models`
    #[arg(long, short, required_unless_present = "attach")]
    model: Option<String>,
    /// Go on with a session that an earlier run reported
    #[arg(long)]
    session: Option<String>,
    /// Leave it to the gateway of this state folder, and print its name
    #[arg(long)]
    detach: bool,
    /// Show a run from its beginning, and follow it to its end; Ctrl+C leaves it running
    #[arg(long, value_name = "RUN", conflicts_with_all = ["model", "session", "detach", "task"])]
    attach: Option<String>,
    /// What to do; `-` or nothing reads it from stdin
    task: Option<String>,
}

impl Run {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(run) = &self.attach {
            return runtime()?.block_on(attach(&self.places, run));
        }
        let model = self.model.unwrap_or_default();
        let task = match self.task {
            Some(task) if task != "-" => task,
            None if io::stdin().is_terminal() => String::new(),
            Some(_) | None => task_from_stdin()?,
        };
        if task.trim().is_empty() {
            tell(format_args!("trunkline: the task is empty: trunkline run -m {model} \"…\""));
            return Ok(Exit::Arguments.into());
        }
        if self.detach {
            return runtime()?.block_on(leave(&self.places, &model, &task, self.session.as_deref()));
        }
        let loaded = Loaded::new(&self.places)?;
        if !loaded.config.models.knows(&model) {
            tell(format_args!("trunkline: {}", loaded.config.unknown_model(&model, &loaded.around)));
            return Ok(Exit::General.into());
        }
        let turn = Turn {
            model,
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
        signal = signals.next() => {
            hear(Step::Withdrawn);
            tell(INTERRUPTED);
            return Ok(Exit::from(signal).into());
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
    let mut telling = Telling::default();
    let mut doing = Doing::new();
    loop {
        let event = tokio::select! {
            event = run.next() => event,
            () = doing.due(), if !telling.answer.open => {
                doing.show(run.phase());
                continue;
            }
            signal = signals.next() => {
                // Dropped first: whatever runs is asked to stop before anything else is done.
                drop(run);
                doing.clear();
                hear(Step::Interrupted);
                telling.answer.end()?;
                tell(INTERRUPTED);
                return Ok(Exit::from(signal).into());
            }
        };
        doing.clear();
        let Some(event) = event else { return Ok(telling.code()) };
        hear(Step::Event(&event));
        telling.hear(event, run.provider())?;
    }
}

/// Hands a task to the gateway, which goes on with it by itself.
async fn leave(places: &Places, model: &str, task: &str, session: Option<&str>) -> Result<ExitCode> {
    let around = Surroundings::read()?;
    let state = places.state_folder(&around);
    let gateway = Running::required(&state, &around)?;
    let body = json!({"model": model, "messages": [{"role": "user", "content": task}], "session_id": session});
    let headers = [("prefer", "respond-async")];
    let reply = gateway.send("POST", "/v1/chat/completions", &headers, &body.to_string()).await;
    let reply = reply.map_err(|error| gateway.silent(&state, error))?;
    let accepted: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    match accepted["id"].as_str().filter(|_| reply.status == 202) {
        Some(run) => {
            say(run)?;
            tell(format_args!("· trunkline run --attach {run} shows it"));
            Ok(ExitCode::SUCCESS)
        }
        None => {
            tell(format_args!("trunkline: {}", refusal(&reply.body)));
            Ok(Exit::General.into())
        }
    }
}

/// Shows a run that somebody else drives.
async fn attach(places: &Places, name: &str) -> Result<ExitCode> {
    let mut signals = StopSignals::listen()?;
    let remembered = Remembered::open(places).await?;
    let run = find(remembered.store.as_ref(), name).await?;
    let Some(store) = &remembered.store else { return Ok(ExitCode::SUCCESS) };
    let mut follow = Follow::kept(&remembered.state, store.clone(), &run.id, 0);
    let (mut telling, mut provider) = (Telling::default(), run.provider.unwrap_or_default());
    loop {
        let entry = tokio::select! {
            entry = follow.next() => entry,
            _ = signals.next() => {
                telling.answer.end()?;
                tell(format_args!("· it goes on; trunkline run --attach {} shows it again", run.id));
                return Ok(ExitCode::SUCCESS);
            }
        };
        let Some(entry) = entry else { return Ok(telling.code()) };
        if let Some(by) = entry.by {
            provider = by.provider;
        }
        telling.hear(entry.event, &provider)?;
    }
}

/// A run as it is told: the answer on stdout, everything else on stderr.
#[derive(Default)]
struct Telling {
    answer: Answer,
    session: Option<SessionId>,
    tools: Tools,
    failed: bool,
}

impl Telling {
    fn hear(&mut self, event: Event, provider: &str) -> Result<()> {
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
            Event::Workspace(receipt) => tell(format_args!("\n· {}", left(&receipt))),
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
        if self.failed { Exit::Provider.into() } else { ExitCode::SUCCESS }
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
