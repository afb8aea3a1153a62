//! What a CLI prints, as events.
//!
//! A decoder is pure and cannot fail: bytes in, events out, and at the end a [`Conclusion`] that says how it went. It
//! never knows who feeds it: a process, a recording, a test. The shape is recognised as it comes: JSON lines, one
//! object over many lines, an array; if no JSON event was seen, the whole output is the answer.

mod acp;
mod ax;
mod claude;
mod codex;
mod fields;
mod gemini;
mod opencode;
mod text;
mod transcript;
mod verdict;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ansi;
use crate::event::{Event, Finish, SessionId, Usage};
use crate::failure::{Failure, Rule};
use crate::lines::{Line, Lines};
use crate::model::Normalize;
use transcript::Transcript;

/// The longest answer that is kept.
pub const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// A dialect: what a CLI's standard output looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    Claude,
    Codex,
    Gemini,
    Qwen,
    Opencode,
    Ax,
    /// Plain text: the whole output is the answer.
    Text,
    /// One JSON object with the answer in a well-known field.
    Json,
    /// JSON lines of the common event types.
    StreamJson,
}

/// What a decoder must know beside the bytes.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Who printed it, for messages.
    pub program: String,
    pub rules: Vec<Rule>,
    pub noise: Vec<String>,
    pub normalize: Normalize,
}

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Code(i32),
    Signal(i32),
    /// It was stopped for time: the limit that fired.
    TimedOut(&'static str),
    /// It was stopped because nobody wants the answer any more.
    Cancelled,
    /// It was not waited for: its last event had come.
    Open,
}

/// What a whole output came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// Events that only the end brought out.
    pub events: Vec<Event>,
    /// The final message; after a failure, what there was of it.
    pub content: String,
    pub usage: Usage,
    pub finish: Finish,
    pub session: Option<SessionId>,
    pub failure: Option<Failure>,
}

/// Reads what one process prints.
#[derive(Debug)]
pub struct Decoder {
    context: Context,
    transcript: Transcript,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Text(text::Text),
    Lines { lines: Lines, dialect: Dialect, plain: Vec<String>, plain_bytes: usize },
}

#[derive(Debug)]
enum Dialect {
    Claude(claude::Claude),
    Codex,
    Gemini,
    Opencode(opencode::Opencode),
    Ax,
    /// One object: nothing is an event until the whole has been seen.
    Json,
    Any(claude::Claude),
}

impl Decoder {
    #[must_use]
    pub fn new(format: Format, context: Context) -> Self {
        let dialect = match format {
            Format::Text => None,
            Format::Claude => Some(Dialect::Claude(claude::Claude::new(claude::Flavour::Claude))),
            Format::Qwen => Some(Dialect::Claude(claude::Claude::new(claude::Flavour::Qwen))),
            Format::Codex => Some(Dialect::Codex),
            Format::Gemini => Some(Dialect::Gemini),
            Format::Opencode => Some(Dialect::Opencode(opencode::Opencode::default())),
            Format::Ax => Some(Dialect::Ax),
            Format::Json => Some(Dialect::Json),
            Format::StreamJson => Some(Dialect::Any(claude::Claude::new(claude::Flavour::Claude))),
        };
        let source = match dialect {
            None => Source::Text(text::Text::new(context.normalize)),
            Some(dialect) => Source::Lines { lines: Lines::default(), dialect, plain: Vec::new(), plain_bytes: 0 },
        };
        Self { context, transcript: Transcript::default(), source }
    }

    /// Takes the next bytes, cut anywhere, and returns the events they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        match &mut self.source {
            Source::Text(text) => text.push(bytes, &mut self.transcript),
            Source::Lines { lines, .. } => {
                let mut complete = Vec::new();
                lines.push(bytes, |line| complete.push(line));
                for line in complete {
                    self.line(line);
                }
            }
        }
        std::mem::take(&mut self.transcript.events)
    }

    /// Whether the turn is over although the process may not be.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.transcript.ended()
    }

    /// Whether it is over only because the CLI keeps trying what cannot succeed: why, stderr may say.
    #[must_use]
    pub fn gave_up(&self) -> bool {
        self.transcript.hopeless && !self.transcript.completed && self.transcript.fault.is_none()
    }

    /// Whether a tool is running: silence is no sign of death then.
    #[must_use]
    pub fn tool_running(&self) -> bool {
        self.transcript.tools_running > 0
    }

    /// The end of the output. `prompt` is what was asked, for an estimate of its tokens.
    pub fn conclude(&mut self, ending: Ending, stderr: &str, prompt: &str) -> Conclusion {
        let last = match &mut self.source {
            Source::Text(_) => None,
            Source::Lines { lines, .. } => lines.finish(),
        };
        if let Some(line) = last {
            self.line(line);
        }
        let plain = self.plain_output();
        verdict::conclude(&mut self.transcript, &self.context, ending, stderr, plain, prompt)
    }

    fn line(&mut self, line: Line) {
        let Source::Lines { dialect, plain, plain_bytes, .. } = &mut self.source else { return };
        let line = match line {
            Line::Whole(line) => line,
            Line::Overlong { head, bytes } => {
                let line = format!("{head}… [a line of {bytes} bytes was left out]");
                self.transcript.events.push(Event::Unknown { line });
                return;
            }
        };
        let line = ansi::strip(&line);
        if dialect.whole_only() || !dialect.json(&line, &mut self.transcript) {
            if self.transcript.seen {
                if !line.trim().is_empty() {
                    self.transcript.events.push(Event::Unknown { line });
                }
            } else if *plain_bytes + line.len() <= MAX_ANSWER {
                *plain_bytes += line.len() + 1;
                plain.push(line);
            } else {
                self.transcript.overflow = true;
            }
        } else if !plain.is_empty() {
            let noise = plain.drain(..).filter(|line| !line.trim().is_empty()).map(|line| Event::Unknown { line });
            let at = 0;
            self.transcript.events.splice(at..at, noise);
        }
    }

    /// What was printed outside of events: a document in one piece, or plain text.
    fn plain_output(&mut self) -> String {
        match &mut self.source {
            Source::Text(text) => text.finish(&mut self.transcript),
            Source::Lines { dialect, plain, .. } => {
                let output = std::mem::take(plain).join("\n");
                if !self.transcript.seen && dialect.document(&output, &mut self.transcript) {
                    return String::new();
                }
                text::normalized(output, self.context.normalize)
            }
        }
    }
}

impl Dialect {
    fn whole_only(&self) -> bool {
        matches!(self, Self::Json)
    }

    /// Reads a line if it is JSON that this dialect knows.
    fn json(&mut self, line: &str, transcript: &mut Transcript) -> bool {
        let start = line.trim_start();
        if !start.starts_with(['{', '[']) {
            return false;
        }
        let Ok(value) = serde_json::from_str::<Value>(start) else { return false };
        self.values(&value, transcript)
    }

    /// Reads the output as one JSON document, possibly after lines of noise.
    fn document(&mut self, output: &str, transcript: &mut Transcript) -> bool {
        let from_line = |text: &str| text.starts_with(['{', '[']);
        let mut rest = output.trim_start();
        loop {
            if from_line(rest)
                && let Ok(value) = serde_json::from_str::<Value>(rest.trim_end())
            {
                return self.values(&value, transcript);
            }
            if rest.starts_with('[') && self.salvage(rest, transcript) {
                return true;
            }
            match rest.split_once('\n') {
                Some((_, after)) if !from_line(rest) => rest = after,
                Some(_) | None => return false,
            }
        }
    }

    /// Reads what is whole of an array that was cut off.
    fn salvage(&mut self, array: &str, transcript: &mut Transcript) -> bool {
        let mut known = false;
        let mut rest = array.trim_start_matches(['[', ' ', '\n']);
        loop {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            let Some(Ok(value)) = values.next() else { return known };
            known |= value.is_object() && self.value(&value, transcript);
            rest = rest[values.byte_offset()..].trim_start_matches([',', ' ', '\n']);
        }
    }

    fn values(&mut self, value: &Value, transcript: &mut Transcript) -> bool {
        let Some(items) = value.as_array() else { return self.value(value, transcript) };
        let known: Vec<bool> =
            items.iter().filter(|item| item.is_object()).map(|item| self.value(item, transcript)).collect();
        known.contains(&true)
    }

    fn value(&mut self, value: &Value, transcript: &mut Transcript) -> bool {
        let known = match self {
            Self::Claude(claude) => claude.value(value, transcript) || common(value, transcript),
            Self::Codex => common(value, transcript),
            Self::Gemini => gemini::value(value, transcript) || common(value, transcript),
            Self::Opencode(opencode) => opencode.value(value, transcript) || common(value, transcript),
            Self::Ax => ax::value(value, transcript) || common(value, transcript),
            Self::Json => fields::whole(value, transcript),
            Self::Any(claude) => by_shape(claude, value, transcript),
        };
        if known {
            transcript.seen = true;
            return true;
        }
        // An event of a type nobody knows is an event still.
        let typed = value.get("type").is_some_and(Value::is_string);
        if typed {
            transcript.seen = true;
            transcript.events.push(Event::Unknown { line: value.to_string() });
        }
        typed
    }
}

/// The vocabularies that several CLIs share: threads, turns and items, `content`, the client protocol, lines with a role.
fn common(value: &Value, transcript: &mut Transcript) -> bool {
    codex::value(value, transcript) || acp::value(value, transcript) || ax::value(value, transcript)
}

/// A stream whose speaker is not known: each event is read by the dialect it looks like.
fn by_shape(claude: &mut claude::Claude, value: &Value, transcript: &mut Transcript) -> bool {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "init" | "tool_use" | "tool_result" | "message" if value.get("part").is_none() => {
            gemini::value(value, transcript)
        }
        "result" if value.get("status").is_some() => gemini::value(value, transcript),
        "system" | "assistant" | "user" | "stream_event" | "result" => claude.value(value, transcript),
        _ => common(value, transcript) || fields::fragment(value, transcript),
    }
}

#[cfg(test)]
mod tests;
