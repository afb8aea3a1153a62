//! Shows a turn as it happens: the answer after `Agent:`, `[Tool: …]` lines and notices. On a full terminal, answers are
//! rendered block by block above a status row, which is erased before anything is printed. Otherwise text is printed as it
//! arrives.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use trunkline_core::event::{Answer, Event, Usage};

use super::blocks::{MarkdownBlocks, MarkdownPiece};
use super::markdown::{self, ListNumbering};
use super::plain::{PlainFilter, first_line, plain};
use super::style::{Colour, ColourMode, StyledSpan, TextStyle, last_columns, width, wrap};
use super::terminal::Terminal;
use super::tool::{RunningTools, call};
use crate::output::tell;
use crate::wording::{cut_short, worktree_result};

const AGENT: &str = "Agent: ";
const AGENT_STYLE: TextStyle = TextStyle::coloured(Colour::Green).bold();

/// Columns of the model's thinking that are kept for the status row.
const MAX_THOUGHT_COLUMNS: usize = 200;

/// Text is not wrapped narrower than this. On a narrower terminal there is no status row.
const MIN_COLUMNS: usize = 20;

/// Characters of a command in the status row.
const MAX_COMMAND_CHARS: usize = 50;

const THINKING: &str = "thinking";

pub(super) struct TurnView<W> {
    out: W,
    terminal: Terminal,
    columns: fn() -> usize,
    /// Kind of the last output.
    last: LastShown,
    filter: PlainFilter,
    blocks: MarkdownBlocks,
    /// Line breaks that are held back until text follows.
    held: String,
    /// Text of the status row, without the time; shown or not.
    status: String,
    /// The status is the model's thinking.
    status_is_thought: bool,
    /// Columns of the status row that is shown; zero if none is.
    status_columns: usize,
    /// Numbering of a list that continues in the next block.
    numbering: ListNumbering,
    /// Tools that are running.
    tools: RunningTools,
    began: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastShown {
    /// Nothing, or the user's input and a blank line.
    Nothing,
    /// Output of an earlier turn.
    Earlier,
    Text,
    /// The beginning of a code block, which needs no blank line before its content.
    Code,
    /// Tools and notices.
    Aside,
}

impl<W: Write> TurnView<W> {
    pub(super) fn new(out: W, terminal: Terminal, columns: fn() -> usize) -> Self {
        Self {
            out,
            terminal,
            columns,
            last: LastShown::Nothing,
            filter: PlainFilter::default(),
            blocks: MarkdownBlocks::default(),
            held: String::new(),
            status: String::new(),
            status_is_thought: false,
            status_columns: 0,
            numbering: ListNumbering::default(),
            tools: RunningTools::default(),
            began: Instant::now(),
        }
    }

    /// Begins a turn.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.began = Instant::now();
        (self.filter, self.blocks) = (PlainFilter::default(), MarkdownBlocks::default());
        self.tools = RunningTools::default();
        if self.terminal != Terminal::None {
            writeln!(self.out)?;
            self.last = LastShown::Nothing;
        } else if self.last != LastShown::Nothing {
            self.last = LastShown::Earlier;
        }
        self.set_status(THINKING);
        self.tick()
    }

    /// Sets the status for a shell command of the user. It is shown from the next tick on.
    pub(super) fn running(&mut self, command: &str) {
        self.began = Instant::now();
        self.set_status(&format!("running {}", first_line(command, MAX_COMMAND_CHARS)));
    }

    pub(super) fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Text { delta } => self.text(delta),
            Event::Thinking { delta } => {
                if !std::mem::replace(&mut self.status_is_thought, true) {
                    self.status.clear();
                }
                self.status.push_str(&plain(delta).replace('\n', " "));
                // Only the end is shown.
                self.status = last_columns(&self.status, MAX_THOUGHT_COLUMNS).to_owned();
                self.tick()
            }
            Event::ToolStarted { id, name, input } => {
                self.end_text()?;
                let call = call(name, input);
                self.aside(&format!("[Tool: {call}]"), TextStyle::coloured(Colour::Cyan))?;
                self.tools.started(id, name, input);
                self.set_status(&format!("running {call}"));
                self.tick()
            }
            Event::ToolFinished { id, output, ok } => {
                self.set_status(THINKING);
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
            Event::Workspace(receipt) => self.note(&worktree_result(receipt)),
            Event::Finished(answer) => self.finished(answer),
            Event::Failed(_)
            | Event::Started { .. }
            | Event::ToolCall { .. }
            | Event::Unknown { .. }
            | Event::Attempted(_) => Ok(()),
        }
    }

    /// Shows a notice on its own line. Without a terminal it goes to stderr, apart from the answers.
    pub(super) fn note(&mut self, message: &str) -> io::Result<()> {
        self.end_text()?;
        if self.terminal == Terminal::None {
            tell(format_args!("· {message}"));
            return Ok(());
        }
        let note = self.wrapped(format!("· {}", plain(message)));
        self.aside(&note, TextStyle::DIM)
    }

    /// Shows an error, in the same place as a notice.
    pub(super) fn error(&mut self, message: &str) -> io::Result<()> {
        self.end_text()?;
        if self.terminal == Terminal::None {
            tell(format_args!("trunkline: {message}"));
            return Ok(());
        }
        let error = self.wrapped(format!("error: {}", plain(message)));
        self.aside(&error, TextStyle::coloured(Colour::Red))
    }

    /// Prints text that is not from the agent, without rendering.
    pub(super) fn print(&mut self, text: &str) -> io::Result<()> {
        self.end_text()?;
        self.erase()?;
        let text = plain(text);
        let text = text.trim_end_matches('\n');
        if !text.is_empty() {
            self.gap(LastShown::Aside)?;
            writeln!(self.out, "{text}")?;
        }
        self.out.flush()
    }

    /// Ends the turn, before the next prompt.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.end_text()?;
        self.erase()?;
        if self.terminal != Terminal::None {
            writeln!(self.out)?;
        }
        self.out.flush()
    }

    /// Updates the status row with its time. To be called regularly.
    pub(super) fn tick(&mut self) -> io::Result<()> {
        let Terminal::Full(colours) = self.terminal else { return Ok(()) };
        let elapsed = self.began.elapsed().as_secs();
        let time = if elapsed == 0 { String::new() } else { format!(" {elapsed}s") };
        let columns = (self.columns)();
        if columns < MIN_COLUMNS {
            self.erase()?;
            return self.out.flush();
        }
        let tail = self.blocks.tail();
        // The width of a tab is not known.
        let text = if tail.is_empty() { &self.status } else { tail }.replace('\t', " ");
        let row = format!("{}…{time}", last_columns(&text, columns.saturating_sub(time.len() + 3)));
        self.unwrap_status()?;
        write!(self.out, "\r\u{1b}[K{}", colours.span(&row, TextStyle::DIM))?;
        self.status_columns = width(&row);
        self.out.flush()
    }

    /// Sets the status.
    fn set_status(&mut self, status: &str) {
        status.clone_into(&mut self.status);
        self.status_is_thought = false;
    }

    fn text(&mut self, delta: &str) -> io::Result<()> {
        let text = self.filter.push(delta);
        if let Terminal::Full(colours) = self.terminal {
            let pieces = self.blocks.push(&text);
            self.pieces(pieces, colours)?;
            return self.tick();
        }
        self.held.push_str(&text);
        let held = std::mem::take(&mut self.held);
        let text_continues = self.last == LastShown::Text;
        // Skip leading blank lines, but keep the indent of the first line, which may be code.
        let blank = if text_continues { 0 } else { held.len() - held.trim_start().len() };
        let from = held[..blank].rfind('\n').map_or(0, |end| end + 1);
        let shown = held[from..].trim_end_matches('\n');
        if shown.is_empty() || (!text_continues && shown.trim().is_empty()) {
            self.held = held;
            return Ok(());
        }
        if !text_continues {
            self.gap(LastShown::Text)?;
            write!(self.out, "{AGENT}")?;
        }
        write!(self.out, "{shown}")?;
        held[from + shown.len()..].clone_into(&mut self.held);
        self.out.flush()
    }

    fn pieces(&mut self, pieces: Vec<MarkdownPiece>, colours: ColourMode) -> io::Result<()> {
        for piece in pieces {
            self.erase()?;
            let first = !matches!(self.last, LastShown::Text | LastShown::Code);
            match piece {
                MarkdownPiece::Markdown(source) => {
                    self.gap(LastShown::Text)?;
                    let lead = first.then(|| StyledSpan::new(AGENT, AGENT_STYLE));
                    for row in markdown::render(&source, self.width(), lead, &mut self.numbering) {
                        writeln!(self.out, "{}", colours.line(&row))?;
                    }
                }
                MarkdownPiece::CodeStart => {
                    self.gap(LastShown::Text)?;
                    self.numbering = ListNumbering::default();
                    if first {
                        writeln!(self.out, "{}", colours.span(AGENT.trim_end(), AGENT_STYLE))?;
                    }
                    self.last = LastShown::Code;
                }
                MarkdownPiece::Code(line) => {
                    self.last = LastShown::Text;
                    writeln!(self.out, "{}", colours.line(&markdown::code_line(&line)))?;
                }
            }
        }
        Ok(())
    }

    /// Prints a blank line between outputs of different kinds.
    fn gap(&mut self, next: LastShown) -> io::Result<()> {
        let needs_gap = match self.last {
            LastShown::Nothing | LastShown::Code => false,
            LastShown::Aside => next != LastShown::Aside,
            LastShown::Earlier | LastShown::Text => true,
        };
        self.last = next;
        if needs_gap { writeln!(self.out) } else { Ok(()) }
    }

    fn aside(&mut self, text: &str, style: TextStyle) -> io::Result<()> {
        self.erase()?;
        self.gap(LastShown::Aside)?;
        let text = match self.terminal {
            Terminal::Full(colours) => colours.span(text, style),
            Terminal::Basic | Terminal::None => text.to_owned(),
        };
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// Wraps text to the terminal's width.
    fn wrapped(&self, text: String) -> String {
        if !matches!(self.terminal, Terminal::Full(_)) {
            return text;
        }
        let rows = wrap(&[StyledSpan::new(text, TextStyle::default())], self.width(), self.width());
        rows.iter().map(|row| ColourMode::None.line(row)).collect::<Vec<_>>().join("\n")
    }

    fn end_text(&mut self) -> io::Result<()> {
        if let Terminal::Full(colours) = self.terminal {
            let pieces = self.blocks.finish();
            self.pieces(pieces, colours)?;
            self.numbering = ListNumbering::default();
            return Ok(());
        }
        self.held.clear();
        if self.last == LastShown::Text {
            writeln!(self.out)?;
            // The line is terminated, and any further output begins with a blank line.
            self.last = LastShown::Earlier;
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
        self.unwrap_status()?;
        if std::mem::take(&mut self.status_columns) > 0 {
            write!(self.out, "\r\u{1b}[K")?;
        }
        Ok(())
    }

    /// Goes back to the first row of the status, which wraps if the window was made narrower.
    fn unwrap_status(&mut self) -> io::Result<()> {
        match self.status_columns.div_ceil((self.columns)().max(1)) {
            0 | 1 => Ok(()),
            rows => write!(self.out, "\r\u{1b}[{}A\u{1b}[J", rows - 1),
        }
    }

    /// Width to which text is wrapped.
    fn width(&self) -> usize {
        (self.columns)().max(MIN_COLUMNS)
    }
}

fn cost(usage: Usage, time: Duration) -> String {
    let about = if usage.estimated { "about " } else { "" };
    let (input, output) = (usage.input_tokens, usage.output_tokens);
    format!("{about}{input} tokens in, {output} out, {:.1} s", time.as_secs_f64())
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
