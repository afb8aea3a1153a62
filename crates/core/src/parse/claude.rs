//! Claude Code `stream-json` and `json`, and Qwen Code, which prints the same events.
//!
//! With partial messages every text comes twice, as deltas and as a complete block. The block adds only what the deltas
//! lacked. Its message may have another id than the deltas, or none. A failed stream retracts its deltas
//! (`abandoned_blocks`) and starts again with another message id.

use std::time::Duration;

use crate::event::{Finish, Usage};
use crate::failure::Category;
use crate::parse::fields::{text_of, usage};
use crate::parse::json::Value;
use crate::parse::transcript::{MAX_ANSWER_BYTES, OutputTranscript, ReportedError, TextOwner};

/// CLI that prints the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    Claude,
    /// Writes API errors into the text of the assistant, as `[API Error: …]`.
    Qwen,
}

const QWEN_ERROR: &str = "[API Error: ";

/// Beginning of Qwen Code's error about a text in place of structured output.
const QWEN_PLAIN_TEXT: &str = "Model produced plain text instead of calling the structured_output tool";

/// Beginning of Qwen Code's error about a model that repeats a call.
const QWEN_LOOP: &str = "Loop detection halted the run";

/// Claude Code's name for a turn without valid structured output.
const CLAUDE_NO_STRUCTURED_OUTPUT: &str = "error_max_structured_output_retries";

impl Flavour {
    /// Tool whose arguments are an answer with a schema. The CLI offers it by itself: it is no work of the agent.
    fn answer_tool(self) -> &'static str {
        match self {
            Self::Claude => "StructuredOutput",
            Self::Qwen => "structured_output",
        }
    }
}

/// Events of the service's stream, which some programs print without an envelope.
const RAW_EVENTS: [&str; 6] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];

/// Events that add nothing to a turn: signs of life during a long tool, and internal messages.
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

/// A retry with a delay of at least this many milliseconds is not awaited.
const MIN_HOPELESS_DELAY_MILLIS: u64 = 30_000;

/// Parser of the events of Claude Code and Qwen Code.
#[derive(Debug)]
pub(super) struct ClaudeParser {
    flavour: Flavour,
    /// Reasoning from deltas that no complete block has repeated yet.
    streamed_reasoning: String,
    /// Start of each block in the current message.
    marks: Vec<usize>,
    /// Error class of the last synthetic message.
    error_class: Option<String>,
    resets_at: Option<i64>,
    /// Answer with a schema, if it was the last call. The CLI may have refused it.
    structured: Option<Box<StructuredAnswer>>,
    /// Tokens of the previous messages; id and tokens of the current one.
    counted: Usage,
    counting: (Option<String>, Usage),
}

/// Call of the tool for an answer with a schema.
#[derive(Debug)]
struct StructuredAnswer {
    id: String,
    json: String,
}

impl ClaudeParser {
    pub(super) fn new(flavour: Flavour) -> Self {
        Self {
            flavour,
            streamed_reasoning: String::new(),
            marks: Vec::new(),
            error_class: None,
            resets_at: None,
            structured: None,
            counted: Usage::default(),
            counting: (None, Usage::default()),
        }
    }

    pub(super) fn read_event(&mut self, value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
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
        transcript.note_time(value);
        transcript.started(value.get("session_id").and_then(Value::as_str), None);
        // Messages of a sub-agent are ignored: its result is the output of a tool of the main agent.
        if value.get("parent_tool_use_id").is_some_and(Value::is_string) {
            return true;
        }
        match kind {
            "system" => self.system(value, transcript),
            "assistant" => self.assistant(value, transcript),
            "user" => self.user(value, transcript),
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

    fn system(&mut self, value: &Value<'_>, transcript: &mut OutputTranscript) {
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
                transcript.transient_error = Some(ReportedError { text, ..ReportedError::default() });
                transcript.retrying(Duration::from_millis(number("retry_delay_ms")));
                // A wrong key stays wrong, and ten retries take three minutes.
                transcript.hopeless |= matches!(status, Some(401 | 403));
            }
            "retry" => {
                let data = value.get("data").unwrap_or(&Value::Null);
                let number = |name: &str| data.get(name).and_then(Value::as_u64);
                if data.get("preserveText").and_then(Value::as_bool) == Some(false) {
                    transcript.retract(0);
                    self.streamed_reasoning.clear();
                }
                if let (Some(attempt), Some(delay)) = (number("attempt"), number("delayMs")) {
                    transcript.notice(format!("retrying in {} s (attempt {attempt})", delay / 1000));
                    transcript.retrying(Duration::from_millis(delay));
                    transcript.hopeless |= delay >= MIN_HOPELESS_DELAY_MILLIS;
                }
            }
            // Reported when compaction begins, and without a value when it is over.
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

    fn assistant(&mut self, value: &Value<'_>, transcript: &mut OutputTranscript) {
        let Some(message) = value.get("message") else { return };
        let synthetic = message.get("model").and_then(Value::as_str) == Some("<synthetic>");
        if synthetic || value.get("error").is_some_and(Value::is_string) {
            self.error_class = value.get("error").and_then(Value::as_str).map(str::to_owned);
            // The text of the error. The result repeats it, if there is one.
            let text = message.get("content").and_then(text_of).unwrap_or_default();
            transcript.transient_error =
                Some(ReportedError { text, kind: self.error_class.clone(), ..ReportedError::default() });
            return;
        }
        let id = message.get("id").and_then(Value::as_str);
        self.count(message, transcript);
        let content = message.get("content").unwrap_or(&Value::Null);
        let mut owner = TextOwner::Message(id);
        if let Some(text) = content.as_str() {
            self.complete_block(owner, text, transcript);
            owner = TextOwner::Current;
        }
        for block in content.as_array().into_iter().flatten() {
            let field = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
            match field("type") {
                "text" => {
                    self.complete_block(owner, field("text"), transcript);
                    owner = TextOwner::Current;
                }
                "thinking" => self.complete_reasoning(field("thinking"), transcript),
                "tool_use" if field("name") == self.flavour.answer_tool() => {
                    let input = block.get("input").map(Value::to_owned).unwrap_or_default();
                    self.structured =
                        Some(Box::new(StructuredAnswer { id: field("id").to_owned(), json: input.to_string() }));
                }
                "tool_use" | "server_tool_use" => {
                    self.structured = None;
                    let input = block.get("input").map(Value::to_owned).unwrap_or_default();
                    transcript.tool_started(field("id"), field("name"), input);
                }
                // Results of the service's own tools are in the same message.
                kind if kind.ends_with("_tool_result") => {
                    transcript.tool_finished(field("tool_use_id"), "", true);
                }
                _ => {}
            }
        }
        // A message without text ends the one before it, unless that one still awaits its complete block.
        if owner != TextOwner::Current && !transcript.awaits_block() {
            self.begin(id, transcript);
        }
    }

    /// Adds up the tokens of messages, once for each message. A turn that is cut off has no other total.
    fn count(&mut self, message: &Value<'_>, transcript: &mut OutputTranscript) {
        let Some(tokens) = message.get("usage").and_then(usage).filter(|tokens| tokens.input_tokens > 0) else {
            return;
        };
        let id = message.get("id").and_then(Value::as_str).map(str::to_owned);
        if self.counting.0 != id {
            self.counted = self.counted.plus(self.counting.1);
        }
        self.counting = (id, tokens);
        transcript.message_usage = Some(self.counted.plus(tokens));
    }

    /// Reads a complete block of text and shows what its deltas lacked.
    fn complete_block(&mut self, owner: TextOwner<'_>, text: &str, transcript: &mut OutputTranscript) {
        let (text, error) = self.split_error(text);
        transcript.complete_block(owner, text);
        if !transcript.withheld().ends_with(error) {
            transcript.withhold(error);
        }
    }

    fn show(&self, text: &str, transcript: &mut OutputTranscript) {
        let (text, error) = self.split_error(text);
        transcript.text(text);
        transcript.withhold(error);
    }

    /// Splits a text before the API error that it may contain.
    fn split_error<'t>(&self, text: &'t str) -> (&'t str, &'t str) {
        match text.find(QWEN_ERROR) {
            Some(at) if self.flavour == Flavour::Qwen => text.split_at(at),
            Some(_) | None => (text, ""),
        }
    }

    /// Reads a complete block of reasoning and shows what its deltas lacked.
    fn complete_reasoning(&mut self, block: &str, transcript: &mut OutputTranscript) {
        let streamed = std::mem::take(&mut self.streamed_reasoning);
        if let Some(later) = streamed.strip_prefix(block) {
            later.clone_into(&mut self.streamed_reasoning);
        } else if !streamed.is_empty() && streamed.ends_with(block) {
            self.streamed_reasoning = streamed[..streamed.len() - block.len()].to_owned();
        } else {
            transcript.thinking(block.strip_prefix(streamed.as_str()).unwrap_or(block));
        }
    }

    fn remember_reasoning(&mut self, delta: &str) {
        if self.streamed_reasoning.len() + delta.len() <= MAX_ANSWER_BYTES {
            self.streamed_reasoning.push_str(delta);
        }
    }

    fn begin(&mut self, id: Option<&str>, transcript: &mut OutputTranscript) {
        let before = transcript.mark();
        transcript.begin_message(id);
        if transcript.mark() == 0 && before > 0 {
            self.marks.clear();
        }
    }

    fn stream_event(&mut self, event: &Value<'_>, envelope: &Value<'_>, transcript: &mut OutputTranscript) {
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => {
                let message = event.get("message");
                transcript.started(None, message.and_then(|m| m.get("model")).and_then(Value::as_str));
                self.streamed_reasoning.clear();
                self.marks.clear();
                transcript.begin_message(message.and_then(|m| m.get("id")).and_then(Value::as_str));
            }
            "content_block_start" => {
                // The first block of a message without `message_start`.
                let first = event.get("index").and_then(Value::as_u64) == Some(0);
                if first && transcript.mark() > 0 && !transcript.awaits_block() {
                    self.begin(None, transcript);
                }
                self.marks.push(transcript.mark());
            }
            "content_block_delta" => {
                let delta = event.get("delta").unwrap_or(&Value::Null);
                if let Some(text) = delta.get("text").and_then(Value::as_str) {
                    self.show(text, transcript);
                } else if let Some(text) = delta.get("thinking").and_then(Value::as_str) {
                    self.remember_reasoning(text);
                    transcript.thinking(text);
                }
            }
            "message_stop" => {
                let abandoned = envelope.get("abandoned_blocks").or_else(|| event.get("abandoned_blocks"));
                if let Some(from) = abandoned.and_then(|blocks| blocks.get("from_block_index")).and_then(Value::as_u64)
                {
                    let mark = usize::try_from(from).ok().and_then(|from| self.marks.get(from)).copied().unwrap_or(0);
                    transcript.retract(mark);
                    self.streamed_reasoning.clear();
                }
            }
            _ => {}
        }
    }

    fn result(&mut self, value: &Value<'_>, transcript: &mut OutputTranscript) {
        let field = |name: &str| value.get(name).and_then(Value::as_str);
        if let Some(usage) = value.get("usage").and_then(usage) {
            transcript.usage = Some(usage);
        }
        let failed = value.get("is_error").and_then(Value::as_bool).unwrap_or(false)
            || field("subtype").is_some_and(|subtype| subtype.starts_with("error"));
        if failed {
            transcript.completed = false;
            let mut error = self.error_of_result(value);
            if self.lacks_structured_output(value) {
                transcript.answer = self.structured.take().map(|answer| answer.json);
                error.category = Some(Category::SchemaMismatch);
            }
            transcript.error = Some(error);
            return;
        }
        transcript.error = None;
        transcript.answer = field("result").map(crate::ansi::strip);
        transcript.completed = true;
        transcript.finish = match field("stop_reason") {
            Some("max_tokens") => Some(Finish::Length),
            Some("refusal") => Some(Finish::ContentFilter),
            Some(_) | None => None,
        };
    }

    /// Whether a turn failed only because its answer does not have the form of its schema.
    fn lacks_structured_output(&self, value: &Value<'_>) -> bool {
        match self.flavour {
            Flavour::Claude => value.get("subtype").and_then(Value::as_str) == Some(CLAUDE_NO_STRUCTURED_OUTPUT),
            Flavour::Qwen => {
                let message = value.pointer("/error/message").and_then(Value::as_str);
                message.is_some_and(|message| {
                    message.starts_with(QWEN_PLAIN_TEXT)
                        || (message.starts_with(QWEN_LOOP) && self.structured.is_some())
                })
            }
        }
    }

    fn user(&self, value: &Value<'_>, transcript: &mut OutputTranscript) {
        let content = value.get("message").and_then(|message| message.get("content")).unwrap_or(&Value::Null);
        for block in content.as_array().into_iter().flatten() {
            let field = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
            if field("type") != "tool_result" {
                continue;
            }
            let id = field("tool_use_id");
            if self.structured.as_ref().is_none_or(|answer| answer.id != id) {
                let output = block.get("content").and_then(text_of).unwrap_or_default();
                let failed = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
                transcript.tool_finished(id, &output, !failed);
            }
            transcript.begin_message(None);
        }
    }

    fn error_of_result(&mut self, value: &Value<'_>) -> ReportedError {
        let field = |name: &str| value.get(name).and_then(Value::as_str);
        let errors = value.get("errors").and_then(Value::as_array).map(|errors| {
            let text = |error: &Value<'_>| error.as_str().or_else(|| error.get("message")?.as_str()).map(str::to_owned);
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
