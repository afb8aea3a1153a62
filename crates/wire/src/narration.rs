//! The events of a run as pieces of an answer, in the words of no dialect: text, reasoning, and calls for the client.
//!
//! Every dialect that streams has a place for each of them, and writes the pieces in its own format. Thinking and the
//! activity of the CLI (its tools and notices) are one text, the reasoning.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::Value;
use trunkline_core::event::{Answer, Event};

use crate::delivered::DeliveredText;

/// Limit for a tool's input (in bytes), and for a tool's output or a notice (in characters). They are a sign of
/// progress, not a transcript.
const MAX_ACTIVITY: usize = 200;

/// The part of an answer that one event adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<'a> {
    Text(&'a str),
    Reasoning(Cow<'a, str>),
    /// A piece of a call that the client has to make itself.
    Call {
        index: u32,
        id: Option<&'a str>,
        name: Option<&'a str>,
        arguments: &'a str,
    },
}

/// Turns the events of one run into pieces.
#[derive(Debug, Default)]
pub struct Narration {
    delivered: DeliveredText,
    /// Whether the reasoning so far ends inside a line.
    inside_line: bool,
}

impl Narration {
    /// Returns the piece that an event adds, if any. Must see every event of the run, in order.
    pub fn hear<'a>(&mut self, event: &'a Event) -> Option<Piece<'a>> {
        self.delivered.observe(event);
        match event {
            Event::Text { delta } => (!delta.is_empty()).then_some(Piece::Text(delta)),
            Event::Thinking { delta } => {
                self.inside_line = !delta.is_empty() && !delta.ends_with('\n');
                (!delta.is_empty()).then_some(Piece::Reasoning(delta.into()))
            }
            Event::ToolStarted { name, input, .. } => Some(self.line(&format!("[tool] {name} {}", compact(input)))),
            Event::ToolFinished { ok: false, output, .. } => {
                Some(self.line(&format!("[tool] failed: {}", one_line(output))))
            }
            Event::Notice { message } => Some(self.line(&format!("[notice] {}", one_line(message)))),
            Event::ToolCall { index, id, name, arguments } => {
                Some(Piece::Call { index: *index, id: id.as_deref(), name: name.as_deref(), arguments })
            }
            Event::ToolFinished { ok: true, .. }
            | Event::Started { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_)
            | Event::Finished(_)
            | Event::Failed(_) => None,
        }
    }

    /// Returns the text of the answer that no event has brought, with a blank line between it and earlier text. Some CLIs
    /// report their answer only at the end.
    #[must_use]
    pub fn missing(&self, answer: &Answer) -> Option<String> {
        self.delivered.missing(answer)
    }

    /// A separate line of the reasoning.
    fn line(&mut self, line: &str) -> Piece<'static> {
        let start = if std::mem::take(&mut self.inside_line) { "\n" } else { "" };
        Piece::Reasoning(format!("{start}{line}\n").into())
    }
}

/// Serialises the beginning of a tool's input. The input may contain a whole file, so serialisation stops at the limit.
fn compact(input: &Value) -> String {
    let mut prefix = TruncatingWriter(Vec::new());
    let complete = serde_json::to_writer(&mut prefix, input).is_ok();
    let text = String::from_utf8_lossy(&prefix.0);
    if complete { text.into_owned() } else { format!("{}…", text.trim_end_matches('\u{fffd}')) }
}

/// Accepts [`MAX_ACTIVITY`] bytes and then fails.
struct TruncatingWriter(Vec<u8>);

impl Write for TruncatingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_ACTIVITY - self.0.len();
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room { Err(io::ErrorKind::WriteZero.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn one_line(text: &str) -> String {
    let mut characters = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = characters.by_ref().take(MAX_ACTIVITY).collect();
    if characters.next().is_some() {
        line.push('…');
    }
    line
}
