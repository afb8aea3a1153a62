//! Shows a turn as it goes: `Agent:` and what it says, `[Tool: …]` lines, notices. On a full terminal answers are
//! rendered block by block, above one row that tells what is going on and is erased before anything is printed; everywhere
//! else text is shown as it comes.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use trunkline_core::event::{Answer, Event, Usage};

use super::blocks::{Blocks, Piece};
use super::markdown::{self, Numbering};
use super::plain::{Plain, first_line, plain};
use super::style::{Colour, Paint, Span, Style, last_columns, width, wrap};
use super::terminal::Terminal;
use super::tool::{Tools, call};
use crate::setup::tell;
use crate::wording::{cut_short, left};

const AGENT: &str = "Agent: ";
const AGENT_LOOK: Style = Style::coloured(Colour::Green).bold();

/// The most of the model's thoughts that is held for the row below.
const MAX_THOUGHT_COLUMNS: usize = 200;

/// Text is not set narrower than this, nor is a row that tells what is going on.
const NARROWEST: usize = 20;

/// A command is known by its beginning.
const LONGEST_COMMAND: usize = 50;

const THINKING: &str = "thinking";

pub(super) struct Show<W> {
    out: W,
    terminal: Terminal,
    columns: fn() -> usize,
    /// What was shown last.
    last: Last,
    filter: Plain,
    blocks: Blocks,
    /// Line ends, held back until there is something behind them.
    held: String,
    /// What the row below says, without the time; shown or not.
    status: String,
    /// It says what the model thinks.
    status_is_thought: bool,
    /// How many columns the row takes; none, if it is not shown.
    status_columns: usize,
    /// The number of the next item, should the next block be one of the same list.
    numbering: Numbering,
    /// Names of the tools that run.
    tools: Tools,
    began: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Nothing, or the user's own line and a blank one.
    Nothing,
    /// What was shown belongs to an earlier turn.
    Earlier,
    Text,
    /// A blank line inside a text is due before the next block.
    Code,
    /// Tools and notices.
    Aside,
}

impl<W: Write> Show<W> {
    pub(super) fn new(out: W, terminal: Terminal, columns: fn() -> usize) -> Self {
        Self {
            out,
            terminal,
            columns,
            last: Last::Nothing,
            filter: Plain::default(),
            blocks: Blocks::default(),
            held: String::new(),
            status: String::new(),
            status_is_thought: false,
            status_columns: 0,
            numbering: Numbering::default(),
            tools: Tools::default(),
            began: Instant::now(),
        }
    }

    /// A turn begins.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.began = Instant::now();
        (self.filter, self.blocks) = (Plain::default(), Blocks::default());
        self.tools = Tools::default();
        if self.terminal != Terminal::None {
            writeln!(self.out)?;
            self.last = Last::Nothing;
        } else if self.last != Last::Nothing {
            self.last = Last::Earlier;
        }
        self.now(THINKING);
        self.tick()
    }

    /// A command of the user's own runs; nothing is shown of it until it has taken some time.
    pub(super) fn running(&mut self, command: &str) {
        self.began = Instant::now();
        self.now(&format!("running {}", first_line(command, LONGEST_COMMAND)));
    }

    pub(super) fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Text { delta } => self.text(delta),
            Event::Thinking { delta } => {
                if !std::mem::replace(&mut self.status_is_thought, true) {
                    self.status.clear();
                }
                self.status.push_str(&plain(delta).replace('\n', " "));
                // Only its end is ever shown.
                self.status = last_columns(&self.status, MAX_THOUGHT_COLUMNS).to_owned();
                self.tick()
            }
            Event::ToolStarted { id, name, input } => {
                self.end_text()?;
                let call = call(name, input);
                self.aside(&format!("[Tool: {call}]"), Style::coloured(Colour::Cyan))?;
                self.tools.started(id, name, input);
                self.now(&format!("running {call}"));
                self.tick()
            }
            Event::ToolFinished { id, output, ok } => {
                self.now(THINKING);
                if *ok {
                    self.tools.finished(id);
                    return self.tick();
                }
                let failed = self.tools.failed(id, output);
                self.note(&failed)?;
                self.tick()
            }
            Event::Notice { message } => {
                self.note(message)?;
                self.tick()
            }
            Event::Workspace(receipt) => self.note(&left(receipt)),
            Event::Finished(answer) => self.finished(answer),
            Event::Failed(_)
            | Event::Started { .. }
            | Event::ToolCall { .. }
            | Event::Unknown { .. }
            | Event::Attempted(_) => Ok(()),
        }
    }

    /// Something about the conversation, in a line of its own. Where a program reads the answers, it is not one of them.
    pub(super) fn note(&mut self, message: &str) -> io::Result<()> {
        self.end_text()?;
        if self.terminal == Terminal::None {
            tell(format_args!("· {message}"));
            return Ok(());
        }
        let note = self.wrapped(format!("· {}", plain(message)));
        self.aside(&note, Style::DIM)
    }

    /// Something went wrong. It is no answer, either.
    pub(super) fn error(&mut self, message: &str) -> io::Result<()> {
        self.end_text()?;
        if self.terminal == Terminal::None {
            tell(format_args!("trunkline: {message}"));
            return Ok(());
        }
        let error = self.wrapped(format!("error: {}", plain(message)));
        self.aside(&error, Style::coloured(Colour::Red))
    }

    /// Text of our own, or of a command: neither rendered nor from the agent.
    pub(super) fn print(&mut self, text: &str) -> io::Result<()> {
        self.end_text()?;
        self.erase()?;
        let text = plain(text);
        let text = text.trim_end_matches('\n');
        if !text.is_empty() {
            self.gap(Last::Aside)?;
            writeln!(self.out, "{text}")?;
        }
        self.out.flush()
    }

    /// The turn is over: the prompt comes next.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.end_text()?;
        self.erase()?;
        if self.terminal != Terminal::None {
            writeln!(self.out)?;
        }
        self.out.flush()
    }

    /// Tells what is going on, and for how long; to be called now and then.
    pub(super) fn tick(&mut self) -> io::Result<()> {
        let Terminal::Full(paint) = self.terminal else { return Ok(()) };
        let elapsed = self.began.elapsed().as_secs();
        let time = if elapsed == 0 { String::new() } else { format!(" {elapsed}s") };
        let columns = (self.columns)();
        if columns < NARROWEST {
            self.erase()?;
            return self.out.flush();
        }
        let tail = self.blocks.tail();
        // A tab takes as many columns as it likes.
        let text = if tail.is_empty() { &self.status } else { tail }.replace('\t', " ");
        let row = format!("{}…{time}", last_columns(&text, columns.saturating_sub(time.len() + 3)));
        self.unwrap_row()?;
        write!(self.out, "\r\u{1b}[K{}", paint.span(&row, Style::DIM))?;
        self.status_columns = width(&row);
        self.out.flush()
    }

    /// What is going on from here on.
    fn now(&mut self, status: &str) {
        status.clone_into(&mut self.status);
        self.status_is_thought = false;
    }

    fn text(&mut self, delta: &str) -> io::Result<()> {
        let text = self.filter.push(delta);
        if let Terminal::Full(paint) = self.terminal {
            let pieces = self.blocks.push(&text);
            self.pieces(pieces, paint)?;
            return self.tick();
        }
        self.held.push_str(&text);
        let held = std::mem::take(&mut self.held);
        let text_goes_on = self.last == Last::Text;
        // Blank lines before the first that is none; its own indent may be that of code.
        let blank = if text_goes_on { 0 } else { held.len() - held.trim_start().len() };
        let from = held[..blank].rfind('\n').map_or(0, |end| end + 1);
        let said = held[from..].trim_end_matches('\n');
        if said.is_empty() || (!text_goes_on && said.trim().is_empty()) {
            self.held = held;
            return Ok(());
        }
        if !text_goes_on {
            self.gap(Last::Text)?;
            write!(self.out, "{AGENT}")?;
        }
        write!(self.out, "{said}")?;
        held[from + said.len()..].clone_into(&mut self.held);
        self.out.flush()
    }

    fn pieces(&mut self, pieces: Vec<Piece>, paint: Paint) -> io::Result<()> {
        for piece in pieces {
            self.erase()?;
            let first = !matches!(self.last, Last::Text | Last::Code);
            match piece {
                Piece::Markdown(source) => {
                    self.gap(Last::Text)?;
                    let lead = first.then(|| Span::new(AGENT, AGENT_LOOK));
                    for row in markdown::render(&source, self.width(), lead, &mut self.numbering) {
                        writeln!(self.out, "{}", paint.line(&row))?;
                    }
                }
                Piece::CodeStart => {
                    self.gap(Last::Text)?;
                    self.numbering = Numbering::default();
                    if first {
                        writeln!(self.out, "{}", paint.span(AGENT.trim_end(), AGENT_LOOK))?;
                    }
                    self.last = Last::Code;
                }
                Piece::Code(line) => {
                    self.last = Last::Text;
                    writeln!(self.out, "{}", paint.line(&markdown::code_line(&line)))?;
                }
            }
        }
        Ok(())
    }

    /// A blank line between what was shown last and what comes, where they are of different kinds.
    fn gap(&mut self, next: Last) -> io::Result<()> {
        let apart = match self.last {
            Last::Nothing | Last::Code => false,
            Last::Aside => next != Last::Aside,
            Last::Earlier | Last::Text => true,
        };
        self.last = next;
        if apart { writeln!(self.out) } else { Ok(()) }
    }

    fn aside(&mut self, text: &str, style: Style) -> io::Result<()> {
        self.erase()?;
        self.gap(Last::Aside)?;
        let text = match self.terminal {
            Terminal::Full(paint) => paint.span(text, style),
            Terminal::Basic | Terminal::None => text.to_owned(),
        };
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// Words of our own, in rows that fit.
    fn wrapped(&self, text: String) -> String {
        if !matches!(self.terminal, Terminal::Full(_)) {
            return text;
        }
        let rows = wrap(&[Span::new(text, Style::default())], self.width(), self.width());
        rows.iter().map(|row| Paint::None.line(row)).collect::<Vec<_>>().join("\n")
    }

    fn end_text(&mut self) -> io::Result<()> {
        if let Terminal::Full(paint) = self.terminal {
            let pieces = self.blocks.finish();
            self.pieces(pieces, paint)?;
            self.numbering = Numbering::default();
            return Ok(());
        }
        self.held.clear();
        if self.last == Last::Text {
            writeln!(self.out)?;
            // Ended, and followed by a blank line by whatever comes.
            self.last = Last::Earlier;
        }
        self.out.flush()
    }

    fn finished(&mut self, answer: &Answer) -> io::Result<()> {
        self.end_text()?;
        if let Some(why) = cut_short(answer.finish) {
            self.note(why)?;
        }
        match self.terminal {
            Terminal::Full(_) => self.note(&cost(answer.usage, self.began.elapsed())),
            Terminal::Basic | Terminal::None => Ok(()),
        }
    }

    fn erase(&mut self) -> io::Result<()> {
        self.unwrap_row()?;
        if std::mem::take(&mut self.status_columns) > 0 {
            write!(self.out, "\r\u{1b}[K")?;
        }
        Ok(())
    }

    /// A window that was made narrower since has broken the row below into several.
    fn unwrap_row(&mut self) -> io::Result<()> {
        match self.status_columns.div_ceil((self.columns)().max(1)) {
            0 | 1 => Ok(()),
            rows => write!(self.out, "\r\u{1b}[{}A\u{1b}[J", rows - 1),
        }
    }

    /// How wide text is set.
    fn width(&self) -> usize {
        (self.columns)().max(NARROWEST)
    }
}

fn cost(usage: Usage, time: Duration) -> String {
    let about = if usage.estimated { "about " } else { "" };
    let (input, output) = (usage.input_tokens, usage.output_tokens);
    format!("{about}{input} tokens in, {output} out, {:.1} s", time.as_secs_f64())
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
