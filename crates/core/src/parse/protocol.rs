//! Output of an executable that speaks the provider protocol: one response object, or one chunk on each line with a piece
//! of text (`delta`) and the text so far (`content`).
//!
//! The two may disagree. The piece is shown, unless `content` extends the shown text by something else; then `content` is
//! used. A member of the wrong type is an error that names the member, because it could be the answer. Unlike with agents,
//! the exit status counts: see [`OutputTranscript::exit_counts`].

mod calls;

use serde_json::Map;

use crate::event::{Finish, Usage};
use crate::parse::json::Value;
use crate::parse::transcript::{OutputTranscript, ReportedError};
use calls::kind;

/// Parser of the provider protocol.
#[derive(Debug, Default)]
pub(super) struct ExecutableParser {
    /// The answer so far.
    sent: String,
    /// `content` is the text so far, and not just the piece. A chunk with the same `content` has nothing new.
    cumulative: bool,
    calls: calls::ToolCallReader,
}

/// Longer strings are left out of the metadata.
const MAX_METADATA_BYTES: usize = 200;

/// Members that make a line a response.
const RESPONSE_MEMBERS: [&str; 4] = ["content", "error", "finish_reason", "tool_calls"];

impl ExecutableParser {
    pub(super) fn read_event(&mut self, value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
        let is_chunk = ["delta", "done"].iter().any(|name| value.get(name).is_some());
        let is_response = RESPONSE_MEMBERS.iter().any(|name| value.get(name).is_some());
        if !value.is_object() || !(is_chunk || is_response) {
            return false;
        }
        if transcript.completed || transcript.error.is_some() {
            return true;
        }
        transcript.note_time(value);
        transcript.started(None, text(value, "model").filter(|model| !model.is_empty()));
        if let Some(reported) = response_error(value) {
            transcript.error = Some(reported);
            return true;
        }
        if let Err(wrong) = check_types(value).and_then(|()| self.calls.read(value, transcript)) {
            transcript.fail_malformed(&wrong);
            return true;
        }
        let piece = if is_chunk { self.piece(value) } else { text(value, "content").unwrap_or_default().to_owned() };
        if !piece.is_empty() || !is_chunk {
            transcript.text(&piece);
        }
        self.sent.push_str(&piece);
        if !is_chunk || value.get("done").and_then(Value::as_bool) == Some(true) {
            transcript.completed = is_chunk || text(value, "content").is_some() || !transcript.calls.is_empty();
            transcript.finish =
                corrected_reason(text(value, "finish_reason").and_then(finish), !transcript.calls.is_empty());
            transcript.usage = usage(value, &self.sent);
            transcript.metadata = metadata(value);
        }
        true
    }

    /// Returns the new text of a chunk.
    fn piece(&mut self, chunk: &Value<'_>) -> String {
        let (content, delta) = (text(chunk, "content").unwrap_or_default(), text(chunk, "delta"));
        let extends = content.strip_prefix(self.sent.as_str()).filter(|rest| !rest.is_empty());
        self.cumulative |= extends.is_some() && !self.sent.is_empty();
        match (extends, delta) {
            (None, Some(_)) if self.cumulative && content == self.sent => String::new(),
            (Some(rest), _) => rest.to_owned(),
            (None, Some(delta)) => delta.to_owned(),
            // There is no `delta`, and `content` is not the text so far: it is the piece.
            (None, None) if content != self.sent => content.to_owned(),
            (None, None) => String::new(),
        }
    }
}

/// Returns the error of a response or chunk. An empty error is none.
fn response_error(value: &Value<'_>) -> Option<ReportedError> {
    match value.get("error")? {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) if text.trim().is_empty() => None,
        Value::String(text) => Some(ReportedError { text: text.clone().into_owned(), ..ReportedError::default() }),
        // Not a string, as the protocol requires, but still an error.
        other @ (Value::Bool(true) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            super::fields::error(value)
                .or_else(|| Some(ReportedError { text: other.to_string(), ..ReportedError::default() }))
        }
    }
}

/// Returns the provider's own name, model and latency. They are metadata: what we report is measured by us.
fn metadata(value: &Value<'_>) -> Map<String, serde_json::Value> {
    let kept = ["latency", "model", "provider", "timestamp"].into_iter().filter_map(|name| {
        let kept =
            |member: &&Value<'_>| member.is_number() || member.as_str().is_some_and(|s| s.len() <= MAX_METADATA_BYTES);
        Some((name.to_owned(), value.get(name).filter(kept)?.to_owned()))
    });
    kept.collect()
}

/// Refuses members of the wrong type. Null is the same as an absent member.
fn check_types(value: &Value<'_>) -> Result<(), String> {
    const STRINGS: [&str; 3] = ["content", "delta", "finish_reason"];
    let wrong = |name: &str, wanted: &str, fits: fn(&Value<'_>) -> bool| {
        let other = value.get(name).filter(|value| !value.is_null() && !fits(value))?;
        Some(format!("`{name}` is {}, not {wanted}", kind(other)))
    };
    let not_a_string = STRINGS.iter().find_map(|name| wrong(name, "a string", |value| value.is_string()));
    match not_a_string.or_else(|| wrong("done", "a boolean", |value| value.is_boolean())) {
        Some(wrong) => Err(wrong),
        None => Ok(()),
    }
}

/// Corrects the finish reason if it does not fit the calls. A client would wait for calls that do not exist, or miss those
/// that do.
fn corrected_reason(reason: Option<Finish>, has_calls: bool) -> Option<Finish> {
    match (reason, has_calls) {
        (Some(Finish::ToolCalls), false) => None,
        (None | Some(Finish::Stop | Finish::ToolCalls), true) => Some(Finish::ToolCalls),
        (reason @ (None | Some(Finish::Stop | Finish::Length | Finish::ContentFilter)), _) => reason,
    }
}

fn finish(reason: &str) -> Option<Finish> {
    match reason {
        "length" | "max_tokens" => Some(Finish::Length),
        "tool_use" | "tool_calls" => Some(Finish::ToolCalls),
        "content_filter" | "safety" => Some(Finish::ContentFilter),
        _ => None,
    }
}

/// Returns the token counts. If only the total is known, the share of the answer is estimated.
fn usage(value: &Value<'_>, answer: &str) -> Option<Usage> {
    let count = |name: &str| value.get(name).and_then(Value::as_u64);
    let total = count("tokens_used").filter(|total| *total > 0);
    let (input, output) = (count("input_tokens"), count("output_tokens"));
    match (input, output, total) {
        (Some(input_tokens), Some(output_tokens), _) if input_tokens > 0 || output_tokens > 0 => {
            Some(Usage { input_tokens, output_tokens, ..Usage::default() })
        }
        (_, Some(output_tokens), Some(total)) if output_tokens > 0 => {
            Some(Usage { input_tokens: total.saturating_sub(output_tokens), output_tokens, ..Usage::default() })
        }
        (Some(input_tokens), _, Some(total)) if input_tokens > 0 => {
            Some(Usage { input_tokens, output_tokens: total.saturating_sub(input_tokens), ..Usage::default() })
        }
        (_, _, Some(total)) => {
            let output_tokens = Usage::estimate("", answer).output_tokens.min(total);
            Some(Usage { input_tokens: total - output_tokens, output_tokens, cached_tokens: 0, estimated: true })
        }
        (_, _, None) => None,
    }
}

fn text<'a>(value: &'a Value<'_>, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}
