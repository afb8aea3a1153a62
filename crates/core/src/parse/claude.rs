//! Claude Code `stream-json` and `json`, and Qwen Code, which speaks the same words.
//!
//! With partial messages every text comes twice, as deltas and as a finished block: the block only adds what the deltas
//! lacked. Its message may have another id than theirs, or none. A failed stream takes its deltas back
//! (`abandoned_blocks`) and starts again under another message id.

use std::time::Duration;

use serde_json::Value;

use crate::event::{Finish, Usage};
use crate::parse::fields::{text_of, usage};
use crate::parse::transcript::{MAX_ANSWER, OutputTranscript, ReportedError, TextOwner};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    Claude,
    /// Writes an API error into the assistant's text as `[API Error: …]`.
    Qwen,
}

const QWEN_ERROR: &str = "[API Error: ";

/// Events of the service's own stream, which some programs print without an envelope.
const RAW_EVENTS: [&str; 6] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];

/// Events that add nothing to a turn: signs of life during a long tool, and housekeeping.
const SILENT_EVENTS: [&str; 11] = [
    "auth_status",
    "command_lifecycle",
    "control_cancel_request",
    "control_request",
    "control_response",
    "conversation_reset",
    "files_persisted",
    "keep_alive",
    "prompt_suggestion",
    "tool_progress",
    "tool_use_summary",
];

/// A retry that waits this long is not worth waiting for, in milliseconds.
const HOPELESS_DELAY: u64 = 30_000;

#[derive(Debug)]
pub(super) struct ClaudeParser {
    flavour: Flavour,
    /// Reasoning that deltas have shown and no whole block has repeated yet.
    thought: String,
    /// Where each block of the present message began.
    marks: Vec<usize>,
    /// The class of the error that the last synthetic message carried.
    error_class: Option<String>,
    resets_at: Option<i64>,
    /// Tokens of the messages that are over, and of the present one.
    counted: Usage,
    counting: (Option<String>, Usage),
}

impl ClaudeParser {
    pub(super) fn new(flavour: Flavour) -> Self {
        Self {
            flavour,
            thought: String::new(),
            marks: Vec::new(),
            error_class: None,
            resets_at: None,
            counted: Usage::default(),
            counting: (None, Usage::default()),
        }
    }

    pub(super) fn value(&mut self, value: &Value, transcript: &mut OutputTranscript) -> bool {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
        let raw = RAW_EVENTS.contains(&kind);
        let spoken = matches!(kind, "system" | "assistant" | "user" | "stream_event" | "rate_limit_event" | "result");
        if !spoken && !raw && !SILENT_EVENTS.contains(&kind) {
            return false;
        }
        if kind == "result" && value.get("status").is_some() {
            return false;
        }
        transcript.expects_end = true;
        transcript.at(value);
        transcript.started(value.get("session_id").and_then(Value::as_str), None);
        // A sub-agent's own talk: its result reaches the main one as a tool's output.
        if value.get("parent_tool_use_id").is_some_and(Value::is_string) {
            return true;
        }
        match kind {
            "system" => self.system(value, transcript),
            "assistant" => self.assistant(value, transcript),
            "user" => user(value, transcript),
            "stream_event" => self.stream_event(value.get("event").unwrap_or(&Value::Null), value, transcript),
            "rate_limit_event" => {
                let info = value.get("rate_limit_info").unwrap_or(&Value::Null);
                let rejected = info.get("status").and_then(Value::as_str) == Some("rejected");
                self.resets_at = info.get("resetsAt").and_then(Value::as_i64).filter(|_| rejected);
            }
            "result" => self.result(value, transcript),
            _ if raw => self.stream_event(value, value, transcript),
            _ => {}
        }
        true
    }

    fn system(&mut self, value: &Value, transcript: &mut OutputTranscript) {
        let field = |name: &str| value.get(name).and_then(Value::as_str);
        match field("subtype").unwrap_or_default() {
            "init" => transcript.started(None, field("model")),
            "api_retry" => {
                let status = value.get("error_status").and_then(Value::as_u64);
                let number = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
                let kind = field("error").filter(|kind| *kind != "unknown");
                let why = match (status, kind) {
                    (Some(status), Some(kind)) => format!("status {status} {kind}"),
                    (Some(status), None) => format!("status {status}"),
                    (None, Some(kind)) => kind.to_owned(),
                    (None, None) => "network error".to_owned(),
                };
                let text =
                    format!("API request failed, attempt {} of {}: {why}", number("attempt"), number("max_retries"));
                transcript.notice(text.as_str());
                transcript.transient = Some(ReportedError { text, ..ReportedError::default() });
                transcript.retrying(Duration::from_millis(number("retry_delay_ms")));
                // A wrong key stays wrong: ten retries of it take three minutes.
                transcript.hopeless |= matches!(status, Some(401 | 403));
            }
            "retry" => {
                let data = value.get("data").unwrap_or(&Value::Null);
                let number = |name: &str| data.get(name).and_then(Value::as_u64);
                if data.get("preserveText").and_then(Value::as_bool) == Some(false) {
                    transcript.retract(0);
                    self.thought.clear();
                }
                if let (Some(attempt), Some(delay)) = (number("attempt"), number("delayMs")) {
                    transcript.notice(format!("retrying in {} s (attempt {attempt})", delay / 1000));
                    transcript.retrying(Duration::from_millis(delay));
                    transcript.hopeless |= delay >= HOPELESS_DELAY;
                }
            }
            // Said when it begins, and with nothing when it is over.
            "status" => transcript.compacting(field("status") == Some("compacting")),
            "hook_started" if field("hook_event") == Some("PreCompact") => transcript.compacting(true),
            "compact_boundary" => transcript.compacting(false),
            "model_fallback" | "informational" => {
                if let Some(text) = field("content").or_else(|| field("message")) {
                    transcript.notice(text);
                }
            }
            _ => {}
        }
    }

    fn assistant(&mut self, value: &Value, transcript: &mut OutputTranscript) {
        let Some(message) = value.get("message") else { return };
        let synthetic = message.get("model").and_then(Value::as_str) == Some("<synthetic>");
        if synthetic || value.get("error").is_some_and(Value::is_string) {
            self.error_class = value.get("error").and_then(Value::as_str).map(str::to_owned);
            // The error's words; the result repeats them, should it come.
            let text = message.get("content").and_then(text_of).unwrap_or_default();
            transcript.transient =
                Some(ReportedError { text, kind: self.error_class.clone(), ..ReportedError::default() });
            return;
        }
        let id = message.get("id").and_then(Value::as_str);
        self.count(message, transcript);
        let content = message.get("content").unwrap_or(&Value::Null);
        let mut of = TextOwner::Message(id);
        if let Some(text) = content.as_str() {
            self.whole(of, text, transcript);
            of = TextOwner::Present;
        }
        for block in content.as_array().into_iter().flatten() {
            let field = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
            match field("type") {
                "text" => {
                    self.whole(of, field("text"), transcript);
                    of = TextOwner::Present;
                }
                "thinking" => self.whole_thought(field("thinking"), transcript),
                "tool_use" | "server_tool_use" => {
                    let input = block.get("input").cloned().unwrap_or(Value::Null);
                    transcript.tool_started(field("id"), field("name"), input);
                }
                // What the service's own tools answered stands in the same message.
                kind if kind.ends_with("_tool_result") => {
                    transcript.tool_finished(field("tool_use_id"), "", true);
                }
                _ => {}
            }
        }
        // A message without text ends the one before it, unless that one is still being streamed.
        if of != TextOwner::Present && !transcript.awaits_whole() {
            self.begin(id, transcript);
        }
    }

    /// Adds a message's tokens up, once for each message: a turn that is cut off has no other sum.
    fn count(&mut self, message: &Value, transcript: &mut OutputTranscript) {
        let Some(tokens) = message.get("usage").and_then(usage).filter(|tokens| tokens.input_tokens > 0) else {
            return;
        };
        let id = message.get("id").and_then(Value::as_str).map(str::to_owned);
        if self.counting.0 != id {
            self.counted = self.counted.plus(self.counting.1);
        }
        self.counting = (id, tokens);
        transcript.counted = Some(self.counted.plus(tokens));
    }

    /// A whole block of text: shows what its deltas have not.
    fn whole(&mut self, of: TextOwner<'_>, text: &str, transcript: &mut OutputTranscript) {
        let (text, error) = self.without_error(text);
        transcript.whole(of, text);
        if !transcript.withheld().ends_with(error) {
            transcript.withhold(error);
        }
    }

    fn show(&self, text: &str, transcript: &mut OutputTranscript) {
        let (text, error) = self.without_error(text);
        transcript.text(text);
        transcript.withhold(error);
    }

    /// The text up to an error that stands in it, and the error.
    fn without_error<'t>(&self, text: &'t str) -> (&'t str, &'t str) {
        match text.find(QWEN_ERROR) {
            Some(at) if self.flavour == Flavour::Qwen => text.split_at(at),
            Some(_) | None => (text, ""),
        }
    }

    /// A whole block of reasoning: shows what its deltas have not.
    fn whole_thought(&mut self, whole: &str, transcript: &mut OutputTranscript) {
        let streamed = std::mem::take(&mut self.thought);
        if let Some(later) = streamed.strip_prefix(whole) {
            later.clone_into(&mut self.thought);
        } else if !streamed.is_empty() && streamed.ends_with(whole) {
            self.thought = streamed[..streamed.len() - whole.len()].to_owned();
        } else {
            transcript.thinking(whole.strip_prefix(streamed.as_str()).unwrap_or(whole));
        }
    }

    fn remember(&mut self, delta: &str) {
        if self.thought.len() + delta.len() <= MAX_ANSWER {
            self.thought.push_str(delta);
        }
    }

    fn begin(&mut self, id: Option<&str>, transcript: &mut OutputTranscript) {
        let before = transcript.mark();
        transcript.begin_message(id);
        if transcript.mark() == 0 && before > 0 {
            self.marks.clear();
        }
    }

    fn stream_event(&mut self, event: &Value, envelope: &Value, transcript: &mut OutputTranscript) {
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => {
                let message = event.get("message");
                transcript.started(None, message.and_then(|m| m.get("model")).and_then(Value::as_str));
                self.thought.clear();
                self.marks.clear();
                transcript.begin_message(message.and_then(|m| m.get("id")).and_then(Value::as_str));
            }
            "content_block_start" => {
                // The first block of a message whose start was not printed.
                let first = event.get("index").and_then(Value::as_u64) == Some(0);
                if first && transcript.mark() > 0 && !transcript.awaits_whole() {
                    self.begin(None, transcript);
                }
                self.marks.push(transcript.mark());
            }
            "content_block_delta" => {
                let delta = event.get("delta").unwrap_or(&Value::Null);
                if let Some(text) = delta.get("text").and_then(Value::as_str) {
                    self.show(text, transcript);
                } else if let Some(text) = delta.get("thinking").and_then(Value::as_str) {
                    self.remember(text);
                    transcript.thinking(text);
                }
            }
            "message_stop" => {
                let abandoned = envelope.get("abandoned_blocks").or_else(|| event.get("abandoned_blocks"));
                if let Some(from) = abandoned.and_then(|blocks| blocks.get("from_block_index")).and_then(Value::as_u64)
                {
                    let mark = usize::try_from(from).ok().and_then(|from| self.marks.get(from)).copied().unwrap_or(0);
                    transcript.retract(mark);
                    self.thought.clear();
                }
            }
            _ => {}
        }
    }

    fn result(&mut self, value: &Value, transcript: &mut OutputTranscript) {
        let field = |name: &str| value.get(name).and_then(Value::as_str);
        if let Some(usage) = value.get("usage").and_then(usage) {
            transcript.usage = Some(usage);
        }
        let failed = value.get("is_error").and_then(Value::as_bool).unwrap_or(false)
            || field("subtype").is_some_and(|subtype| subtype.starts_with("error"));
        if failed {
            transcript.completed = false;
            transcript.fault = Some(self.fault(value));
            return;
        }
        transcript.fault = None;
        transcript.answer = field("result").map(crate::ansi::strip);
        transcript.completed = true;
        transcript.finish = match field("stop_reason") {
            Some("max_tokens") => Some(Finish::Length),
            Some("refusal") => Some(Finish::ContentFilter),
            Some(_) | None => None,
        };
    }

    fn fault(&mut self, value: &Value) -> ReportedError {
        let field = |name: &str| value.get(name).and_then(Value::as_str);
        let errors = value.get("errors").and_then(Value::as_array).map(|errors| {
            let text = |error: &Value| error.as_str().or_else(|| error.get("message")?.as_str()).map(str::to_owned);
            errors.iter().filter_map(text).collect::<Vec<_>>().join("\n")
        });
        let message = value.pointer("/error/message").or_else(|| value.get("error")).and_then(text_of);
        let text = message
            .or_else(|| field("result").filter(|text| !text.is_empty()).map(str::to_owned))
            .or_else(|| errors.filter(|text| !text.is_empty()))
            .unwrap_or_else(|| format!("the turn ended with {}", field("subtype").unwrap_or("an error")));
        let class = self.error_class.take().filter(|class| class != "unknown" && class != "server_error");
        let kinds = [field("api_error").map(str::to_owned), field("api_error_type").map(str::to_owned), class];
        ReportedError {
            text,
            status: value.get("api_error_status").and_then(Value::as_u64),
            kind: kinds.into_iter().flatten().reduce(|all, kind| format!("{all} {kind}")),
            retry_after: None,
            resets_at: self.resets_at,
            category: None,
            family: None,
        }
    }
}

fn user(value: &Value, transcript: &mut OutputTranscript) {
    let content = value.get("message").and_then(|message| message.get("content")).unwrap_or(&Value::Null);
    for block in content.as_array().into_iter().flatten() {
        let field = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        if field("type") == "tool_result" {
            let output = block.get("content").and_then(text_of).unwrap_or_default();
            let failed = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
            transcript.tool_finished(field("tool_use_id"), &output, !failed);
            transcript.begin_message(None);
        }
    }
}
