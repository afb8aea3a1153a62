//! The loop of the REPL: reads a line, executes it, and shows the result.

use std::io::{self, Stdout};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, interval, interval_at};
use trunkline_agent::tools::{Shell, Toolbox};
use trunkline_core::failure::Category;
use trunkline_core::near::near;
use trunkline_core::vocabulary::Permissions;
use trunkline_engine::{Engine, Run};

use super::command::{ReplInput, help};
use super::conversation::ReplConversation;
use super::index::SavedConversation;
use super::plain::plain;
use super::reader::{LineReader, ReadOutcome};
use super::terminal::{EchoOff, Terminal, columns};
use super::view::TurnView;
use crate::exit::CliExit;
use crate::output::say;
use crate::setup::LoadedConfig;
use crate::signals::{ReceivedSignal, StopSignals};
use crate::wording::{ModelListCommand, Refusal, failed, unknown_model};

/// Interval of updating the status row.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

const SESSION_LOST: &str =
    "The session is lost: the next message includes the earlier conversation. /clear starts a new one.";

pub(crate) struct Repl<'a> {
    engine: &'a Engine,
    folder: PathBuf,
    shell: Shell,
    conversation: ReplConversation,
    model: String,
    terminal: Terminal,
    view: TurnView<Stdout>,
    reader: LineReader,
    signals: StopSignals,
    /// Exit status of the latest turn, if it failed.
    failed: Option<CliExit>,
}

/// Next step after a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterLine {
    /// The next line is read.
    Continue,
    Leave,
    /// A signal arrived before the end of input.
    Stopped(ReceivedSignal),
    /// The terminal was closed.
    HungUp,
}

impl<'a> Repl<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        shell: Shell,
        conversation: ReplConversation,
        model: String,
        loaded: &LoadedConfig,
    ) -> io::Result<Self> {
        let terminal = Terminal::of(&loaded.environment);
        let signals = StopSignals::listen_with_hangup()?;
        let reader = LineReader::start(terminal, &loaded.state.join("repl/history"));
        let view = TurnView::new(io::stdout(), terminal, columns);
        let folder = loaded.environment.folder.clone();
        Ok(Self { engine, folder, shell, conversation, model, terminal, view, reader, signals, failed: None })
    }

    /// Executes lines until there are no more. `notes` are shown at the beginning. `resume` is the command that continues a
    /// conversation, shown at the end.
    pub(crate) async fn run(mut self, notes: &[String], resume: &str) -> Result<ExitCode> {
        self.welcome(notes)?;
        let end = loop {
            match self.turn().await {
                Ok(AfterLine::Continue) => {}
                other => break other,
            }
        };
        if matches!(end, Ok(AfterLine::HungUp)) {
            // The editor does not notice a closed terminal, so its thread is not joined.
            return Ok(CliExit::HungUp.into());
        }
        self.reader.end();
        let next = end?;
        if self.terminal != Terminal::None {
            say("")?;
            if let Some(session) = self.conversation.session() {
                say(plain(&format!("Continue with: {resume} {session}")))?;
            }
        }
        Ok(match (next, self.terminal) {
            (AfterLine::Stopped(signal), _) => CliExit::from(signal).into(),
            (AfterLine::HungUp, _) => CliExit::HungUp.into(),
            (AfterLine::Continue | AfterLine::Leave, Terminal::None) => {
                self.failed.map_or(ExitCode::SUCCESS, Into::into)
            }
            // An interactive user has seen the failure.
            (AfterLine::Continue | AfterLine::Leave, Terminal::Full(_) | Terminal::Basic) => ExitCode::SUCCESS,
        })
    }

    fn welcome(&mut self, notes: &[String]) -> io::Result<()> {
        if self.terminal != Terminal::None {
            self.view.note(&format!("Talking to {}. /help shows what else there is; Ctrl+D leaves.", self.model))?;
            notes.iter().try_for_each(|note| self.view.note(note))?;
        }
        if !self.engine.models().knows(&self.model) {
            self.unknown_model(&self.model.clone())?;
            self.failed = Some(CliExit::General);
        }
        self.view.end()
    }

    /// Reads one line and executes it.
    async fn turn(&mut self) -> Result<AfterLine> {
        let outcome = tokio::select! {
            outcome = self.reader.next() => outcome,
            // At the prompt there is nothing to interrupt.
            signal = self.signals.next() => return Ok(match self.after(signal) {
                AfterLine::Continue => AfterLine::Leave,
                next @ (AfterLine::Leave | AfterLine::Stopped(_) | AfterLine::HungUp) => next,
            }),
        };
        let line = match outcome {
            ReadOutcome::Line(line) => line,
            ReadOutcome::Leave | ReadOutcome::End => return Ok(AfterLine::Leave),
            ReadOutcome::Broken(error) => return Err(error.into()),
        };
        let input = ReplInput::parse(&line);
        match input {
            ReplInput::Nothing => return Ok(AfterLine::Continue),
            ReplInput::Leave => return Ok(AfterLine::Leave),
            ReplInput::Message(text) => return self.ask(&text).await,
            ReplInput::Shell(command) => return self.bash(&command).await,
            ReplInput::Clear => {
                self.conversation.clear();
                self.view.note("The conversation was cleared.")?;
            }
            ReplInput::Help => self.view.print(&help())?,
            ReplInput::Model(None) => self.list_models()?,
            ReplInput::Model(Some(name)) => self.change_model(name)?,
            ReplInput::Sessions => self.list_sessions()?,
            ReplInput::Unknown { name, near } => {
                let hint = match near.as_slice() {
                    [] => format!("see /help, or write /{name} to send it as a message"),
                    near => format!("did you mean {}?", near.join(" or ")),
                };
                self.view.error(&format!("no such command: {name}; {hint}"))?;
            }
            ReplInput::UnexpectedArgument(name) => self.view.error(&format!("{name} takes no argument"))?,
        }
        self.show_problems()?;
        self.view.end()?;
        Ok(AfterLine::Continue)
    }

    /// Sends a message and shows the answer.
    async fn ask(&mut self, text: &str) -> Result<AfterLine> {
        let echo_off = self.turn_echo_off();
        let had_session = self.conversation.has_session();
        self.view.begin()?;
        let turn = self.conversation.ask(&self.model, text);
        let started = tokio::select! {
            started = self.engine.start(turn) => Ok(started),
            signal = self.signals.next() => Err(signal),
        };
        let next = match started {
            Ok(Ok(run)) => {
                let answered = self.answer(run).await;
                // If the output failed, the turn is still recorded.
                self.conversation.interrupt();
                answered?
            }
            Ok(Err(error)) => {
                let refusal = Refusal::of(&self.model, error, ModelListCommand::Repl);
                self.conversation.withdraw(refusal.category, &refusal.message);
                self.failed = Some(refusal.exit);
                if let Some(tried) = refusal.tried {
                    self.view.note(&tried)?;
                }
                self.view.error(&refusal.message)?;
                AfterLine::Continue
            }
            Err(signal) => {
                self.conversation.withdraw(Category::Cancelled, "interrupted");
                self.interrupted(signal)?
            }
        };
        if self.failed.is_some() && had_session && !self.conversation.has_session() {
            self.view.note(SESSION_LOST)?;
        }
        self.show_problems()?;
        self.view.end()?;
        drop(echo_off);
        Ok(next)
    }

    async fn answer(&mut self, mut run: Run) -> Result<AfterLine> {
        let mut tick = interval(STATUS_INTERVAL);
        loop {
            let event = tokio::select! {
                event = run.next() => event,
                _ = tick.tick() => {
                    self.view.tick()?;
                    continue;
                }
                signal = self.signals.next() => {
                    // Dropped first, so that the run is cancelled before anything else is done.
                    drop(run);
                    self.conversation.interrupt();
                    return Ok(self.interrupted(signal)?);
                }
            };
            let Some(event) = event else { return Ok(AfterLine::Continue) };
            self.conversation.record(&event);
            self.view.event(&event)?;
            match event.end() {
                Some(Ok(_)) => self.failed = None,
                Some(Err(failure)) => {
                    self.failed = Some(CliExit::Provider);
                    self.view.error(&failed(run.provider(), &failure))?;
                }
                None => {}
            }
        }
    }

    /// Runs a shell command of the user. Its output is shown even if it is stopped.
    async fn bash(&mut self, command: &str) -> Result<AfterLine> {
        let echo_off = self.turn_echo_off();
        self.conversation.ran(command);
        self.view.running(command);
        // A new toolbox for each command: stopping one is final.
        let tools = Toolbox::new(self.folder.clone(), Permissions::Full, self.shell.clone());
        let mut running = pin!(tools.bash(command));
        let mut tick = interval_at(Instant::now() + STATUS_INTERVAL, STATUS_INTERVAL);
        let mut stopped = None;
        let outcome = loop {
            tokio::select! {
                outcome = &mut running => break outcome,
                _ = tick.tick() => self.view.tick()?,
                signal = self.signals.next() => {
                    tools.stop();
                    stopped = Some(signal);
                }
            }
        };
        self.view.print(&outcome.output)?;
        self.show_problems()?;
        self.view.end()?;
        drop(echo_off);
        Ok(stopped.map_or(AfterLine::Continue, |signal| self.after(signal)))
    }

    fn interrupted(&mut self, signal: ReceivedSignal) -> io::Result<AfterLine> {
        let next = self.after(signal);
        if next != AfterLine::HungUp {
            self.view.note("interrupted")?;
        }
        Ok(next)
    }

    /// Next step after a signal: an interactive user gets the next prompt, a program does not.
    fn after(&self, signal: ReceivedSignal) -> AfterLine {
        match (signal, self.terminal) {
            (ReceivedSignal::Interrupt, Terminal::Full(_) | Terminal::Basic) => AfterLine::Continue,
            (ReceivedSignal::Interrupt, Terminal::None) | (ReceivedSignal::Terminate, _) => AfterLine::Stopped(signal),
            (ReceivedSignal::Hangup, _) => AfterLine::HungUp,
        }
    }

    fn list_models(&mut self) -> io::Result<()> {
        let models = self.engine.models();
        let mut rows: Vec<String> = Vec::new();
        for name in models.names() {
            rows.push(format!("{} {name}", if name == self.model { "*" } else { " " }));
        }
        if rows.is_empty() {
            return self.view.error("no models; see: trunkline doctor");
        }
        self.view.print(&rows.join("\n"))
    }

    fn change_model(&mut self, name: String) -> io::Result<()> {
        if !self.engine.models().knows(&name) {
            return self.unknown_model(&name);
        }
        self.model = name;
        self.view.note(&format!("Talking to {}.", self.model))
    }

    fn unknown_model(&mut self, name: &str) -> io::Result<()> {
        let names = self.engine.models().names();
        let near = near(name, names.iter().map(String::as_str));
        self.view.error(&unknown_model(name, &near, ModelListCommand::Repl))
    }

    fn list_sessions(&mut self) -> io::Result<()> {
        let sessions = self.conversation.sessions();
        if sessions.is_empty() {
            return self.view.note("No conversation of this folder can be resumed.");
        }
        let row = |entry: &SavedConversation| {
            let time = entry.time.strftime("%Y-%m-%d %H:%M");
            format!("{}  {time}  {}  {}", entry.session, entry.model, entry.title)
        };
        let rows: Vec<String> = sessions.iter().take(20).map(row).collect();
        self.view.print(&rows.join("\n"))
    }

    fn show_problems(&mut self) -> io::Result<()> {
        self.conversation.take_problems().iter().try_for_each(|problem| self.view.note(problem))
    }

    fn turn_echo_off(&self) -> Option<EchoOff> {
        matches!(self.terminal, Terminal::Full(_)).then(EchoOff::begin).flatten()
    }
}
