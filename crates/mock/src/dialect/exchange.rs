//! Requests and replies independent of the dialect, and the parts of parsing and rendering that dialects share.

use serde_json::{Value, json};

use crate::history::{HistoryEntry, MockHistory};
use crate::tools::{CallArguments, MockCall, OfferedTool};

/// Parsed request, independent of the dialect.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MockRequest {
    pub history: MockHistory,
    pub tools: Vec<OfferedTool>,
    /// Absent for Gemini, which has the model and the format in the path.
    pub model: Option<String>,
    /// Always false for Gemini.
    pub stream: bool,
    /// For chat completions: whether a stream ends with the usage. True for the other dialects.
    pub include_usage: bool,
}

/// Reply to a request, independent of the dialect.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MockReply {
    /// Hash of the request, so that the same request gets the same reply.
    pub id: u64,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    pub text: Option<String>,
    pub calls: Vec<MockCall>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub include_usage: bool,
}

impl MockReply {
    /// Splits the text into words, as a model would stream it.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.text.as_deref().unwrap_or_default().split_inclusive(' ')
    }

    pub(super) fn total_tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens
    }
}

pub(super) fn frame(name: Option<&str>, payload: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(name) = name {
        out.extend_from_slice(format!("event: {name}\n").as_bytes());
    }
    trunkline_wire::sse::data(&mut out, &payload.to_string());
    out
}

/// Returns the arguments as an object, for dialects that require one.
pub(super) fn arguments_object(arguments: &CallArguments) -> Value {
    match arguments {
        CallArguments::Json(text) => match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) => object,
            // Arguments that are invalid on purpose must still reach the client.
            _ => json!({"arguments": text}),
        },
        CallArguments::Freeform(text) => json!({"input": text}),
    }
}

/// Splits a text into two halves, so that clients get pieces that are valid JSON only when joined.
pub(super) fn halves(text: &str) -> impl Iterator<Item = &str> {
    let middle = (text.len() / 2..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    let (first, second) = text.split_at(middle);
    [first, second].into_iter().filter(|half| !half.is_empty())
}

/// Returns the texts of `content`, which is a string or a list of parts.
pub(super) fn texts(content: &Value) -> Vec<String> {
    match content {
        Value::String(text) => vec![text.clone()],
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).map(str::to_owned).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

/// Returns the list of messages, which a request must have.
pub(super) fn required_list<'a>(body: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    body[name].as_array().ok_or_else(|| format!("missing `{name}`: the list of messages so far"))
}

pub(super) fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

pub(super) fn model(body: &Value) -> Option<String> {
    body["model"].as_str().filter(|model| !model.is_empty()).map(str::to_owned)
}

/// Creates the history entry of a message from its role and texts.
pub(super) fn message_entry(role: &str, texts: Vec<String>) -> HistoryEntry {
    match role {
        "user" => HistoryEntry::User(texts),
        "assistant" | "model" => HistoryEntry::Assistant(texts),
        _ => HistoryEntry::Instructions(texts),
    }
}
