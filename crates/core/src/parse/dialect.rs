//! Which words a stream is read with, and the shapes they come in: lines, one object, an array, with noise around them.

use std::borrow::Cow;

use serde_json::Value;

use super::format::Format;
use super::transcript::OutputTranscript;
use super::{acp, app_server, ax, claude, codex, fields, gemini, opencode, protocol};
use crate::event::Event;

#[derive(Debug)]
pub(super) enum DialectParser {
    Claude(claude::ClaudeParser),
    Codex(app_server::AppServerParser),
    Gemini,
    Opencode(opencode::OpencodeParser),
    Ax,
    /// One object: nothing is an event until the whole has been seen.
    Json,
    Any(claude::ClaudeParser),
    Protocol(protocol::ExecutableParser),
}

impl DialectParser {
    /// The words of a format; plain text has none.
    pub(super) fn of(format: Format) -> Option<Self> {
        Some(match format {
            Format::Text => return None,
            Format::Claude => Self::Claude(claude::ClaudeParser::new(claude::Flavour::Claude)),
            Format::Qwen => Self::Claude(claude::ClaudeParser::new(claude::Flavour::Qwen)),
            Format::Codex => Self::Codex(app_server::AppServerParser::default()),
            Format::Gemini => Self::Gemini,
            Format::Opencode => Self::Opencode(opencode::OpencodeParser::default()),
            Format::Ax => Self::Ax,
            Format::Json => Self::Json,
            Format::Protocol => Self::Protocol(protocol::ExecutableParser::default()),
            Format::StreamJson => Self::Any(claude::ClaudeParser::new(claude::Flavour::Claude)),
        })
    }

    pub(super) fn whole_only(&self) -> bool {
        matches!(self, Self::Json)
    }

    /// Reads a line if it is JSON that this dialect knows.
    pub(super) fn json(&mut self, line: &str, transcript: &mut OutputTranscript) -> bool {
        let start = line.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        if !start.starts_with(['{', '[']) {
            return false;
        }
        // Usually one value; but nothing keeps a CLI from printing two on a line.
        let values = leading_values(start);
        let known: Vec<bool> = values.iter().map(|value| self.values(value, transcript)).collect();
        known.contains(&true)
    }

    /// Reads the output as one JSON document, possibly between lines of noise.
    pub(super) fn document(&mut self, output: &str, transcript: &mut OutputTranscript) -> bool {
        let output = output.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        // An object that is all there is may be anybody's response.
        let whole = serde_json::from_str::<Value>(&repaired(output));
        if let Ok(value) = &whole {
            let anybodys = !matches!(self, Self::Protocol(_));
            let known = self.values(value, transcript) || (anybodys && fields::whole(value, transcript));
            transcript.seen |= known;
            return known;
        }
        let mut rest = output;
        for _ in 0..MOST_STARTS {
            if rest.starts_with('[') && self.salvage(rest, transcript) {
                return true;
            }
            if rest.starts_with('{')
                && let Some(value) = leading_values(rest).first()
                && self.values(value, transcript)
            {
                return true;
            }
            let Some(next) = next_start(rest) else { break };
            rest = next;
        }
        // The beginning of an object and no end: a response that was cut off, not an answer.
        transcript.cut_off |= output.starts_with('{') && whole.is_err_and(|error| error.is_eof());
        let cut = |line: &str| ["{\"type\"", "[{\"type\""].iter().any(|start| line.starts_with(start));
        transcript.cut_off |= output.lines().next_back().is_some_and(cut);
        false
    }

    /// Reads what is whole of an array that was cut off.
    fn salvage(&mut self, array: &str, transcript: &mut OutputTranscript) -> bool {
        let mut known = false;
        let mut rest = array.trim_start_matches(['[', ' ', '\n']);
        loop {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            let Some(Ok(value)) = values.next() else { return known };
            known |= value.is_object() && self.value(&value, transcript);
            rest = rest[values.byte_offset()..].trim_start_matches([',', ' ', '\n']);
        }
    }

    fn values(&mut self, value: &Value, transcript: &mut OutputTranscript) -> bool {
        let Some(items) = value.as_array() else { return self.value(value, transcript) };
        let known: Vec<bool> =
            items.iter().filter(|item| item.is_object()).map(|item| self.value(item, transcript)).collect();
        known.contains(&true)
    }

    fn value(&mut self, value: &Value, transcript: &mut OutputTranscript) -> bool {
        let known = match self {
            Self::Claude(claude) => claude.value(value, transcript) || common(value, transcript),
            Self::Codex(server) => server.value(value, transcript) || common(value, transcript),
            Self::Gemini => gemini::value(value, transcript) || common(value, transcript),
            Self::Opencode(opencode) => opencode.value(value, transcript) || common(value, transcript),
            Self::Ax => ax::error(value, transcript) || common(value, transcript),
            Self::Json => fields::whole(value, transcript),
            Self::Any(claude) => by_shape(claude, value, transcript),
            Self::Protocol(protocol) => protocol.value(value, transcript),
        };
        if known {
            transcript.seen = true;
            transcript.known = true;
            return true;
        }
        // An event of a type nobody knows is an event still.
        let kind = value.get("type").and_then(Value::as_str);
        let typed = kind.is_some();
        if let Some(kind) = kind {
            transcript.seen = true;
            transcript.strange(kind);
            transcript.strangers += 1;
            transcript.stranger.get_or_insert_with(|| value.clone());
            transcript.events.push(Event::Unknown { line: value.to_string() });
        }
        typed
    }
}

/// How many places an output is searched for a document that noise precedes.
const MOST_STARTS: usize = 64;

/// What follows the next line break that an object or an array stands behind.
fn next_start(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let (_, after) = rest.split_once('\n')?;
        let line = after.trim_start_matches([' ', '\t']);
        if line.starts_with(['{', '[']) {
            return Some(line);
        }
        rest = after;
    }
}

/// The JSON values that a text begins with.
fn leading_values(text: &str) -> Vec<Value> {
    let text = repaired(text);
    serde_json::Deserializer::from_str(&text).into_iter::<Value>().map_while(Result::ok).collect()
}

/// JSON with escapes for halves of characters, as JavaScript prints them when it cuts a text, made readable: a half
/// becomes the replacement character.
fn repaired(json: &str) -> Cow<'_, str> {
    let half = |at: usize| {
        let digits = json.get(at + 2..at + 6)?;
        let unit = u16::from_str_radix(digits, 16).ok()?;
        (json[at..].starts_with("\\u") && (0xD800..0xE000).contains(&unit)).then_some(unit)
    };
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len());
    let mut at = 0;
    while let Some(c) = json[at..].chars().next() {
        let width = match (c, half(at)) {
            ('\\', Some(0xD800..0xDC00)) if half(at + 6).is_some_and(|low| low >= 0xDC00) => 12,
            ('\\', Some(_)) => {
                text.push('\u{fffd}');
                at += 6;
                continue;
            }
            // Any other escape, whole: a backslash may stand for itself.
            ('\\', None) => 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
            (c, _) => c.len_utf8(),
        };
        text.push_str(&json[at..at + width]);
        at += width;
    }
    Cow::Owned(text)
}

/// The vocabularies that several CLIs share: threads, turns and items, `content`, the client protocol, lines with a role.
fn common(value: &Value, transcript: &mut OutputTranscript) -> bool {
    codex::value(value, transcript) || acp::value(value, transcript) || ax::message(value, transcript)
}

/// A stream whose speaker is not known: each event is read by the dialect it looks like.
fn by_shape(claude: &mut claude::ClaudeParser, value: &Value, transcript: &mut OutputTranscript) -> bool {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "init" | "tool_use" | "tool_result" | "message" if value.get("part").is_none() => {
            gemini::value(value, transcript)
        }
        "result" if value.get("status").is_some() => gemini::value(value, transcript),
        "system"
        | "assistant"
        | "user"
        | "stream_event"
        | "result"
        | "tool_progress"
        | "message_start"
        | "content_block_start"
        | "content_block_delta"
        | "content_block_stop"
        | "message_delta"
        | "message_stop" => claude.value(value, transcript),
        _ => common(value, transcript) || fields::fragment(value, transcript),
    }
}
