//! The loop: asks for a line, does what it says, and shows what comes of it.

use std::io::{self, Stdout};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use trunkline_agent::tools::Toolbox;
use trunkline_core::near::near;
use trunkline_engine::{Engine, Run};

use super::command::{Said, help};
use super::index::Entry;
use super::plain::plain;
use super::reader::{Heard, Reader};
use super::show::Show;
use super::talk::Talk;
use super::terminal::{Terminal, Unechoed, columns};
use crate::Exit;
use crate::config::Surroundings;
use crate::setup::{StopSignal, StopSignals, say};
use crate::wording::{Refusal, failed, unknown_model};

/// How often the time is shown while an answer is awaited.
const TICK: Duration = Duration::from_secs(1);

pub(crate) struct Repl<'a> {
    engine: &'a Engine,
    /// Of which only the shell is used here: the others are the model's.
    tools: Toolbox,
    talk: Talk,
    model: String,
    terminal: Terminal,
    show: Show<Stdout>,
    reader: Reader,
    signals: StopSignals,
    /// The latest turn came to nothing.
    failed: bool,
}

/// Whether there is a next line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Line,
    Leave,
    /// Told to end while there was more to do.
    Stopped,
}

impl<'a> Repl<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        tools: Toolbox,
        talk: Talk,
        model: String,
        around: &Surroundings,
        state: &Path,
    ) -> io::Result<Self> {
        let terminal = Terminal::of(around);
        let signals = StopSignals::listen()?;
        let reader = Reader::start(terminal, &state.join("repl/history"));
        let show = Show::new(io::stdout(), terminal, columns);
        Ok(Self { engine, tools, talk, model, terminal, show, reader, signals, failed: false })
    }

    /// Answers line after line until there are no more. `notes` are for whoever types the first one.
    pub(crate) async fn run(mut self, notes: &[String]) -> Result<ExitCode> {
        self.welcome(notes)?;
        let end = loop {
            match self.turn().await {
                Ok(Next::Line) => {}
                other => break other,
            }
        };
        self.reader.end();
        let next = end?;
        if self.terminal != Terminal::None {
            say("")?;
            if let Some(session) = self.talk.session() {
                say(format!("Go on with: trunkline agent --resume {}", plain(&session.0)))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        Ok(match next {
            Next::Stopped => Exit::General.into(),
            Next::Line | Next::Leave if self.failed => Exit::Provider.into(),
            Next::Line | Next::Leave => ExitCode::SUCCESS,
        })
    }

    fn welcome(&mut self, notes: &[String]) -> io::Result<()> {
        if self.terminal == Terminal::None {
            return Ok(());
        }
        self.show.note(&format!("Talking to {}. /help shows what else there is; Ctrl+D leaves.", self.model))?;
        notes.iter().try_for_each(|note| self.show.note(note))?;
        if !self.engine.models().knows(&self.model) {
            self.unknown_model(&self.model.clone())?;
        }
        self.show.end()
    }

    /// One line and all that follows from it.
    async fn turn(&mut self) -> Result<Next> {
        let heard = tokio::select! {
            heard = self.reader.next() => heard,
            // At the prompt there is nothing else to interrupt.
            _ = self.signals.next() => return Ok(Next::Stopped),
        };
        let line = match heard {
            Heard::Line(line) => line,
            Heard::Leave | Heard::End => return Ok(Next::Leave),
            Heard::Broken(error) => return Err(error.into()),
        };
        let said = Said::parse(&line);
        match said {
            Said::Nothing => return Ok(Next::Line),
            Said::Leave => return Ok(Next::Leave),
            Said::Message(text) => return self.ask(&text).await,
            Said::Shell(command) => return self.bash(&command).await,
            Said::Clear => {
                self.talk.clear();
                self.show.note("The conversation is forgotten.")?;
            }
            Said::Help => self.show.print(&help())?,
            Said::Model(None) => self.list_models()?,
            Said::Model(Some(name)) => self.change_model(name)?,
            Said::Sessions => self.list_sessions()?,
            Said::Unknown { name, near } => {
                let hint = match near.as_slice() {
                    [] => format!("/help shows them; to send it as a message, write /{name}"),
                    near => format!("did you mean {}?", near.join(" or ")),
                };
                self.show.error(&format!("no such command: {}; {hint}", plain(&name)))?;
            }
        }
        self.tell_troubles()?;
        self.show.end()?;
        Ok(Next::Line)
    }

    /// Has a message answered.
    async fn ask(&mut self, text: &str) -> Result<Next> {
        let unechoed = self.unechoed();
        self.show.begin()?;
        let turn = self.talk.ask(&self.model, text);
        let started = tokio::select! {
            started = self.engine.start(turn) => Ok(started),
            signal = self.signals.next() => Err(signal),
        };
        let next = match started {
            Ok(Ok(run)) => self.answer(run).await?,
            Ok(Err(error)) => {
                let refusal = Refusal::of(&self.model, error);
                self.talk.withdraw(&refusal.message);
                if let Some(tried) = refusal.tried {
                    self.show.note(&tried)?;
                }
                self.show.error(&refusal.message)?;
                self.failed = true;
                Next::Line
            }
            Err(signal) => {
                self.talk.withdraw("interrupted");
                self.interrupted(signal)?
            }
        };
        self.tell_troubles()?;
        self.show.end()?;
        drop(unechoed);
        Ok(next)
    }

    async fn answer(&mut self, mut run: Run) -> Result<Next> {
        let mut tick = tokio::time::interval(TICK);
        loop {
            let event = tokio::select! {
                event = run.next() => event,
                _ = tick.tick() => {
                    self.show.tick()?;
                    continue;
                }
                signal = self.signals.next() => {
                    // Dropped first: whatever runs is asked to stop before anything else is done.
                    drop(run);
                    self.talk.interrupt();
                    return Ok(self.interrupted(signal)?);
                }
            };
            let Some(event) = event else { return Ok(Next::Line) };
            self.talk.hear(&event);
            self.show.event(&event)?;
            match event.end() {
                Some(Ok(_)) => self.failed = false,
                Some(Err(failure)) => {
                    self.failed = true;
                    self.show.error(&failed(run.provider(), &failure))?;
                }
                None => {}
            }
        }
    }

    /// Runs a command of the user's own.
    async fn bash(&mut self, command: &str) -> Result<Next> {
        let unechoed = self.unechoed();
        self.talk.ran(command);
        let ran = tokio::select! {
            ran = self.tools.bash(command) => Ok(ran),
            signal = self.signals.next() => Err(signal),
        };
        let next = match ran {
            Ok(outcome) => {
                self.show.print(&outcome.output)?;
                Next::Line
            }
            Err(signal) => self.interrupted(signal)?,
        };
        self.tell_troubles()?;
        self.show.end()?;
        drop(unechoed);
        Ok(next)
    }

    /// What was going on was stopped: someone who types has more to say, a program does not.
    fn interrupted(&mut self, signal: StopSignal) -> io::Result<Next> {
        self.show.note("interrupted")?;
        Ok(match (signal, self.terminal) {
            (StopSignal::Interrupt, Terminal::Full(_) | Terminal::Basic) => Next::Line,
            (StopSignal::Interrupt, Terminal::None) | (StopSignal::Terminate, _) => Next::Stopped,
        })
    }

    fn list_models(&mut self) -> io::Result<()> {
        let models = self.engine.models();
        let mut rows: Vec<String> = Vec::new();
        for name in models.names() {
            rows.push(format!("{} {name}", if name == self.model { "*" } else { " " }));
        }
        if rows.is_empty() {
            return self.show.error("no models; see: trunkline doctor");
        }
        self.show.print(&rows.join("\n"))
    }

    fn change_model(&mut self, name: String) -> io::Result<()> {
        if !self.engine.models().knows(&name) {
            return self.unknown_model(&name);
        }
        self.model = name;
        self.show.note(&format!("Talking to {}.", self.model))
    }

    fn unknown_model(&mut self, name: &str) -> io::Result<()> {
        let names = self.engine.models().names();
        let near = near(name, names.iter().map(String::as_str));
        self.show.error(&plain(&unknown_model(name, &near).replace("trunkline models", "/model")))
    }

    fn list_sessions(&mut self) -> io::Result<()> {
        let sessions = self.talk.sessions();
        if sessions.is_empty() {
            return self.show.note("No conversation of this folder can be resumed.");
        }
        let row = |entry: &Entry| {
            let time = entry.time.strftime("%Y-%m-%d %H:%M");
            format!("{}  {time}  {}  {}", entry.session, entry.model, entry.title)
        };
        let rows: Vec<String> = sessions.iter().take(20).map(row).collect();
        self.show.print(&rows.join("\n"))
    }

    fn tell_troubles(&mut self) -> io::Result<()> {
        self.talk.troubles().iter().try_for_each(|trouble| self.show.note(trouble))
    }

    fn unechoed(&self) -> Option<Unechoed> {
        matches!(self.terminal, Terminal::Full(_)).then(Unechoed::begin).flatten()
    }
}
