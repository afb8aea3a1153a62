//! API dialects of the mock, one file each: pure functions that parse a request's JSON into a [`MockRequest`], and
//! render a [`MockReply`] as JSON or as the frames of a stream.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use serde_json::{Value, json};

use crate::fault::ScriptedError;
use crate::history::{HistoryEntry, MockHistory};
use crate::tools::{CallArguments, MockCall, OfferedTool};

pub(crate) use chat::MODEL;

/// API that a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiDialect {
    /// OpenAI chat completions: Qwen Code, OpenCode, most clients.
    Chat,
    /// OpenAI responses: Codex.
    Responses,
    /// Anthropic messages: Claude Code.
    Anthropic,
    /// Gemini generateContent: Gemini CLI.
    Gemini,
}

/// Format of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyFormat {
    Whole,
    /// Server-sent events.
    Events,
    /// Gemini's other streaming format: the elements of a JSON array.
    Array,
}

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

impl ApiDialect {
    /// Parses a request. The error message is for the client.
    pub(crate) fn parse(self, body: &Value) -> Result<MockRequest, String> {
        if !body.is_object() {
            return Err("the body is not a JSON object".to_owned());
        }
        match self {
            Self::Chat => chat::parse(body),
            Self::Responses => responses::parse(body),
            Self::Anthropic => anthropic::parse(body),
            Self::Gemini => gemini::parse(body),
        }
    }

    /// Renders a complete response.
    #[must_use]
    pub(crate) fn whole(self, reply: &MockReply) -> Value {
        match self {
            Self::Chat => chat::whole(reply),
            Self::Responses => responses::whole(reply),
            Self::Anthropic => anthropic::whole(reply),
            Self::Gemini => gemini::whole(reply),
        }
    }

    /// Renders the frames of a server-sent event stream, each as it is written.
    #[must_use]
    pub(crate) fn events(self, reply: &MockReply) -> Vec<Vec<u8>> {
        match self {
            Self::Chat => chat::events(reply),
            Self::Responses => named_frames(&responses::events(reply)),
            Self::Anthropic => named_frames(&anthropic::events(reply)),
            Self::Gemini => gemini::chunks(reply).iter().map(|chunk| frame(None, chunk)).collect(),
        }
    }

    /// Renders a stream as the elements of a JSON array.
    #[must_use]
    pub(crate) fn array(self, reply: &MockReply) -> Vec<Vec<u8>> {
        let chunks = match self {
            Self::Gemini => gemini::chunks(reply),
            Self::Chat | Self::Responses | Self::Anthropic => vec![self.whole(reply)],
        };
        let mut pieces: Vec<Vec<u8>> = vec![b"[".to_vec()];
        for (index, chunk) in chunks.iter().enumerate() {
            pieces.push(format!("{}{chunk}\n", if index == 0 { "" } else { ",\r\n" }).into_bytes());
        }
        pieces.push(b"]".to_vec());
        pieces
    }

    /// Renders the body of an error response.
    #[must_use]
    pub(crate) fn error(self, error: &ScriptedError) -> Value {
        let (message, names) = (error.message(), error.vendor_names());
        let kind = |default: &str| error.kind.clone().unwrap_or_else(|| default.to_owned());
        match self {
            Self::Chat | Self::Responses => {
                let (openai, code) = names.openai;
                let code = error.code.as_deref().or(error.kind.as_deref()).or(code);
                json!({"error": {"message": message, "type": kind(openai), "param": null, "code": code}})
            }
            Self::Anthropic => {
                json!({"type": "error", "error": {"type": kind(names.anthropic), "message": message}})
            }
            Self::Gemini => {
                json!({"error": {"code": error.status, "message": message, "status": kind(names.google)}})
            }
        }
    }

    /// Renders the response to a request that counts tokens.
    #[must_use]
    pub(crate) fn token_count(self, tokens: u64) -> Value {
        match self {
            Self::Gemini => json!({"totalTokens": tokens}),
            Self::Chat | Self::Responses | Self::Anthropic => json!({"input_tokens": tokens}),
        }
    }
}

impl MockReply {
    /// Splits the text into words, as a model would stream it.
    fn words(&self) -> impl Iterator<Item = &str> {
        self.text.as_deref().unwrap_or_default().split_inclusive(' ')
    }

    fn total_tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens
    }
}

/// Renders frames with an `event:` line that repeats the `type` of the payload.
fn named_frames(events: &[Value]) -> Vec<Vec<u8>> {
    events.iter().map(|event| frame(event["type"].as_str(), event)).collect()
}

fn frame(name: Option<&str>, payload: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(name) = name {
        out.extend_from_slice(format!("event: {name}\n").as_bytes());
    }
    trunkline_wire::sse::data(&mut out, &payload.to_string());
    out
}

/// Returns the arguments as an object, for dialects that require one.
fn arguments_object(arguments: &CallArguments) -> Value {
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
fn halves(text: &str) -> impl Iterator<Item = &str> {
    let middle = (text.len() / 2..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    let (first, second) = text.split_at(middle);
    [first, second].into_iter().filter(|half| !half.is_empty())
}

/// Returns the texts of `content`, which is a string or a list of parts.
fn texts(content: &Value) -> Vec<String> {
    match content {
        Value::String(text) => vec![text.clone()],
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).map(str::to_owned).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

/// Returns the list of messages, which a request must have.
fn required_list<'a>(body: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    body[name].as_array().ok_or_else(|| format!("missing `{name}`: the list of messages so far"))
}

fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

fn model(body: &Value) -> Option<String> {
    body["model"].as_str().filter(|model| !model.is_empty()).map(str::to_owned)
}

/// Creates the history entry of a message from its role and texts.
fn message_entry(role: &str, texts: Vec<String>) -> HistoryEntry {
    match role {
        "user" => HistoryEntry::User(texts),
        "assistant" | "model" => HistoryEntry::Assistant(texts),
        _ => HistoryEntry::Instructions(texts),
    }
}

#[cfg(test)]
mod tests;
