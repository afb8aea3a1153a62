//! Selects the parser of a format, and finds the JSON values in the output: lines, one object, or an array, with noise
//! around them.

use std::borrow::Cow;

use super::format::Format;
use super::json::Value;
use super::transcript::OutputTranscript;
use super::{acp, app_server, ax, claude, codex, fields, gemini, opencode, protocol};
use crate::event::Event;

/// Parser of a format.
#[derive(Debug)]
pub(super) enum DialectParser {
    Claude(claude::ClaudeParser),
    Codex(app_server::AppServerParser),
    Gemini,
    Opencode(opencode::OpencodeParser),
    Ax,
    /// One object, which is read only when it is complete.
    Json,
    /// Events of any format.
    Any(claude::ClaudeParser),
    Protocol(protocol::ExecutableParser),
}

impl DialectParser {
    /// Returns the parser of a format; plain text has none.
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

    /// Reads a line if it is JSON that this parser knows.
    pub(super) fn read_line(&mut self, line: &str, transcript: &mut OutputTranscript) -> bool {
        let start = line.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        if !start.starts_with(['{', '[']) {
            return false;
        }
        let mut known = false;
        // Usually there is one value, but a CLI may print two on a line.
        each_leading_value(start, |value| known |= self.read_values(&value, transcript));
        known
    }

    /// Reads the output as one JSON document, possibly between lines of noise.
    pub(super) fn read_document(&mut self, output: &str, transcript: &mut OutputTranscript) -> bool {
        let output = output.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        // If the output is a single object, it may be a response in any of the usual shapes.
        let repaired = repaired(output);
        let whole = serde_json::from_str::<Value<'_>>(&repaired);
        if let Ok(value) = &whole {
            let any_shape = !matches!(self, Self::Protocol(_));
            let known = self.read_values(value, transcript) || (any_shape && fields::whole_response(value, transcript));
            transcript.saw_event |= known;
            return known;
        }
        let mut rest = output;
        for _ in 0..MAX_DOCUMENT_STARTS {
            if rest.starts_with('[') && self.read_partial_array(rest, transcript) {
                return true;
            }
            if rest.starts_with('{')
                && with_first_value(rest, |value| self.read_values(&value, transcript)) == Some(true)
            {
                return true;
            }
            let Some(next) = next_start(rest) else { break };
            rest = next;
        }
        // An object without its end is a response that was cut off, not an answer.
        transcript.cut_off |= output.starts_with('{') && whole.is_err_and(|error| error.is_eof());
        let cut = |line: &str| ["{\"type\"", "[{\"type\""].iter().any(|start| line.starts_with(start));
        transcript.cut_off |= output.lines().next_back().is_some_and(cut);
        false
    }

    /// Reads the complete values of an array that was cut off.
    fn read_partial_array(&mut self, array: &str, transcript: &mut OutputTranscript) -> bool {
        let mut known = false;
        let mut rest = array.trim_start_matches(['[', ' ', '\n']);
        loop {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value<'_>>();
            let Some(Ok(value)) = values.next() else { return known };
            known |= value.is_object() && self.read_value(&value, transcript);
            rest = rest[values.byte_offset()..].trim_start_matches([',', ' ', '\n']);
        }
    }

    fn read_values(&mut self, value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
        let Some(items) = value.as_array() else { return self.read_value(value, transcript) };
        let mut known = false;
        for item in items.iter().filter(|item| item.is_object()) {
            known |= self.read_value(item, transcript);
        }
        known
    }

    fn read_value(&mut self, value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
        let known = match self {
            Self::Claude(claude) => claude.read_event(value, transcript) || common(value, transcript),
            Self::Codex(server) => server.read_event(value, transcript) || common(value, transcript),
            Self::Gemini => gemini::read_event(value, transcript) || common(value, transcript),
            Self::Opencode(opencode) => opencode.read_event(value, transcript) || common(value, transcript),
            Self::Ax => ax::error(value, transcript) || common(value, transcript),
            Self::Json => fields::whole_response(value, transcript),
            Self::Any(claude) => by_shape(claude, value, transcript),
            Self::Protocol(protocol) => protocol.read_event(value, transcript),
        };
        if known {
            transcript.saw_event = true;
            transcript.saw_known_event = true;
            return true;
        }
        // An event of an unknown type is still an event.
        let kind = value.get("type").and_then(Value::as_str);
        let typed = kind.is_some();
        if let Some(kind) = kind {
            transcript.saw_event = true;
            transcript.note_unknown_kind(kind);
            transcript.unknown_events += 1;
            transcript.first_unknown_event.get_or_insert_with(|| value.to_owned());
            transcript.events.push(Event::Unknown { line: value.to_string() });
        }
        typed
    }
}

/// Number of places where a document after noise is searched for.
const MAX_DOCUMENT_STARTS: usize = 64;

/// Returns the text from the next line on that begins with an object or an array.
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

/// Passes the JSON values at the beginning of a text to `each`.
fn each_leading_value(text: &str, each: impl FnMut(Value<'_>)) {
    let text = repaired(text);
    serde_json::Deserializer::from_str(&text).into_iter().map_while(Result::ok).for_each(each);
}

/// Passes the JSON value at the beginning of a text to `read`.
fn with_first_value<R>(text: &str, read: impl FnOnce(Value<'_>) -> R) -> Option<R> {
    let text = repaired(text);
    serde_json::Deserializer::from_str(&text).into_iter().next()?.ok().map(read)
}

/// Replaces escapes of unpaired surrogates by the replacement character. JavaScript prints them when it cuts a text in the
/// middle of a character.
fn repaired(json: &str) -> Cow<'_, str> {
    let surrogate = |at: usize| {
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
        let width = match (c, surrogate(at)) {
            ('\\', Some(0xD800..0xDC00)) if surrogate(at + 6).is_some_and(|low| low >= 0xDC00) => 12,
            ('\\', Some(_)) => {
                text.push('\u{fffd}');
                at += 6;
                continue;
            }
            // Any other escape is copied with the character after the backslash, which may be a backslash too.
            ('\\', None) => 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
            (c, _) => c.len_utf8(),
        };
        text.push_str(&json[at..at + width]);
        at += width;
    }
    Cow::Owned(text)
}

/// Events that several CLIs share: threads, turns and items, `content`, ACP, and lines with a role.
fn common(value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
    codex::read_event(value, transcript) || acp::read_event(value, transcript) || ax::message(value, transcript)
}

/// Reads an event of an unknown CLI with the parser that its shape fits.
fn by_shape(claude: &mut claude::ClaudeParser, value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "init" | "tool_use" | "tool_result" | "message" if value.get("part").is_none() => {
            gemini::read_event(value, transcript)
        }
        "result" if value.get("status").is_some() => gemini::read_event(value, transcript),
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
        | "message_stop" => claude.read_event(value, transcript),
        _ => common(value, transcript) || fields::stream_fragment(value, transcript),
    }
}
