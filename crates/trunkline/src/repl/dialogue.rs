//! The loop: asks for a line, does what it says, and shows what comes of it.

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
use trunkline_core::provider::Permissions;
use trunkline_engine::{Engine, Run};

use super::command::{Said, help};
use super::index::Entry;
use super::plain::plain;
use super::reader::{Heard, Reader};
use super::show::Show;
use super::talk::Talk;
use super::terminal::{Terminal, Unechoed, columns};
use crate::Exit;
use crate::setup::{Loaded, StopSignal, StopSignals, say};
use crate::wording::{Models, Refusal, failed, unknown_model};

/// How often the time is shown while an answer is awaited.
const TICK: Duration = Duration::from_secs(1);

const SESSION_LOST: &str = "The session is given up: with the next message, the model is told what was said. /clear begins a new conversation.";

pub(crate) struct Repl<'a> {
    engine: &'a Engine,
    folder: PathBuf,
    shell: Shell,
    talk: Talk,
    model: String,
    terminal: Terminal,
    show: Show<Stdout>,
    reader: Reader,
    signals: StopSignals,
    /// How the latest turn failed, if it did.
    failed: Option<Exit>,
}

/// Whether there is a next line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Line,
    Leave,
    /// Told to end while there was more to do.
    Stopped(StopSignal),
    /// The same, and nobody is there any more.
    Gone,
}

impl<'a> Repl<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        shell: Shell,
        talk: Talk,
        model: String,
        loaded: &Loaded,
    ) -> io::Result<Self> {
        let terminal = Terminal::of(&loaded.around);
        let signals = StopSignals::listen_with_hangup()?;
        let reader = Reader::start(terminal, &loaded.state.join("repl/history"));
        let show = Show::new(io::stdout(), terminal, columns);
        let folder = loaded.around.folder.clone();
        Ok(Self { engine, folder, shell, talk, model, terminal, show, reader, signals, failed: None })
    }

    /// Answers line after line until there are no more. `notes` are for whoever types the first one, and `resume` is the
    /// command that goes on with a conversation.
    pub(crate) async fn run(mut self, notes: &[String], resume: &str) -> Result<ExitCode> {
        self.welcome(notes)?;
        let end = loop {
            match self.turn().await {
                Ok(Next::Line) => {}
                other => break other,
            }
        };
        if matches!(end, Ok(Next::Gone)) {
            // An editor would not notice: it is left to end with the process.
            return Ok(Exit::HungUp.into());
        }
        self.reader.end();
        let next = end?;
        if self.terminal != Terminal::None {
            say("")?;
            if let Some(session) = self.talk.session() {
                say(plain(&format!("Go on with: {resume} {session}")))?;
            }
        }
        Ok(match (next, self.terminal) {
            (Next::Stopped(signal), _) => Exit::from(signal).into(),
            (Next::Gone, _) => Exit::HungUp.into(),
            (Next::Line | Next::Leave, Terminal::None) => self.failed.map_or(ExitCode::SUCCESS, Into::into),
            // Whoever types has seen what failed.
            (Next::Line | Next::Leave, Terminal::Full(_) | Terminal::Basic) => ExitCode::SUCCESS,
        })
    }

    fn welcome(&mut self, notes: &[String]) -> io::Result<()> {
        if self.terminal != Terminal::None {
            self.show.note(&format!("Talking to {}. /help shows what else there is; Ctrl+D leaves.", self.model))?;
            notes.iter().try_for_each(|note| self.show.note(note))?;
        }
        if !self.engine.models().knows(&self.model) {
            self.unknown_model(&self.model.clone())?;
            self.failed = Some(Exit::General);
        }
        self.show.end()
    }

    /// One line and all that follows from it.
    async fn turn(&mut self) -> Result<Next> {
        let heard = tokio::select! {
            heard = self.reader.next() => heard,
            // At the prompt there is nothing else to interrupt.
            signal = self.signals.next() => return Ok(match self.after(signal) {
                Next::Line => Next::Leave,
                next @ (Next::Leave | Next::Stopped(_) | Next::Gone) => next,
            }),
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
                self.show.error(&format!("no such command: {name}; {hint}"))?;
            }
            Said::Surplus(name) => self.show.error(&format!("{name} takes nothing after it"))?,
        }
        self.tell_troubles()?;
        self.show.end()?;
        Ok(Next::Line)
    }

    /// Has a message answered.
    async fn ask(&mut self, text: &str) -> Result<Next> {
        let unechoed = self.unechoed();
        let remembered = self.talk.is_remembered();
        self.show.begin()?;
        let turn = self.talk.ask(&self.model, text);
        let started = tokio::select! {
            started = self.engine.start(turn) => Ok(started),
            signal = self.signals.next() => Err(signal),
        };
        let next = match started {
            Ok(Ok(run)) => {
                let answered = self.answer(run).await;
                // Where nothing can be shown any more, what was said is still kept.
                self.talk.interrupt();
                answered?
            }
            Ok(Err(error)) => {
                let refusal = Refusal::of(&self.model, error, Models::Conversation);
                self.talk.withdraw(refusal.category, &refusal.message);
                self.failed = Some(refusal.exit);
                if let Some(tried) = refusal.tried {
                    self.show.note(&tried)?;
                }
                self.show.error(&refusal.message)?;
                Next::Line
            }
            Err(signal) => {
                self.talk.withdraw(Category::Cancelled, "interrupted");
                self.interrupted(signal)?
            }
        };
        if self.failed.is_some() && remembered && !self.talk.is_remembered() {
            self.show.note(SESSION_LOST)?;
        }
        self.tell_troubles()?;
        self.show.end()?;
        drop(unechoed);
        Ok(next)
    }

    async fn answer(&mut self, mut run: Run) -> Result<Next> {
        let mut tick = interval(TICK);
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
                Some(Ok(_)) => self.failed = None,
                Some(Err(failure)) => {
                    self.failed = Some(Exit::Provider);
                    self.show.error(&failed(run.provider(), &failure))?;
                }
                None => {}
            }
        }
    }

    /// Runs a command of the user's own. What it printed is shown, also if it is stopped.
    async fn bash(&mut self, command: &str) -> Result<Next> {
        let unechoed = self.unechoed();
        self.talk.ran(command);
        self.show.running(command);
        // One for each: to stop is final for all that it runs.
        let tools = Toolbox::new(self.folder.clone(), Permissions::Full, self.shell.clone());
        let mut running = pin!(tools.bash(command));
        let mut tick = interval_at(Instant::now() + TICK, TICK);
        let mut stopped = None;
        let outcome = loop {
            tokio::select! {
                outcome = &mut running => break outcome,
                _ = tick.tick() => self.show.tick()?,
                signal = self.signals.next() => {
                    tools.stop();
                    stopped = Some(signal);
                }
            }
        };
        self.show.print(&outcome.output)?;
        self.tell_troubles()?;
        self.show.end()?;
        drop(unechoed);
        Ok(stopped.map_or(Next::Line, |signal| self.after(signal)))
    }

    fn interrupted(&mut self, signal: StopSignal) -> io::Result<Next> {
        let next = self.after(signal);
        if next != Next::Gone {
            self.show.note("interrupted")?;
        }
        Ok(next)
    }

    /// What was going on was stopped: someone who types has more to say, a program does not.
    fn after(&self, signal: StopSignal) -> Next {
        match (signal, self.terminal) {
            (StopSignal::Interrupt, Terminal::Full(_) | Terminal::Basic) => Next::Line,
            (StopSignal::Interrupt, Terminal::None) | (StopSignal::Terminate, _) => Next::Stopped(signal),
            (StopSignal::Hangup, _) => Next::Gone,
        }
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
        self.show.error(&unknown_model(name, &near, Models::Conversation))
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
