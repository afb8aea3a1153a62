//! The APIs the mock speaks, each in a file of its own: pure functions from a request's JSON to what is [`Asked`], and
//! from a [`Reply`] to JSON or to the frames of a stream.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use serde_json::{Value, json};

use crate::fault::ErrorAnswer;
use crate::history::{Entry, History};
use crate::tools::{Arguments, Call, Offered};

pub(crate) use chat::MODEL;

/// Whose words are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI chat completions: Qwen Code, OpenCode, most clients.
    Chat,
    /// OpenAI responses: Codex.
    Responses,
    /// Anthropic messages: Claude Code.
    Anthropic,
    /// Gemini generateContent: Gemini CLI.
    Gemini,
}

/// How an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    /// Server-sent events.
    Events,
    /// Gemini's other stream: the elements of a JSON array.
    Array,
}

/// What a request comes to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub history: History,
    pub tools: Vec<Offered>,
    /// Gemini says these two in the path instead.
    pub model: Option<String>,
    pub streams: bool,
    /// Chat only: whether a stream ends with the usage.
    pub include_usage: bool,
}

/// One answer, in nobody's words yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    /// Made of the request: who asks the same is answered the same.
    pub id: u64,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    pub text: Option<String>,
    pub calls: Vec<Call>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub include_usage: bool,
}

impl Dialect {
    /// Reads a request. The error is for the client.
    pub(crate) fn read(self, body: &Value) -> Result<Asked, String> {
        if !body.is_object() {
            return Err("the body is not a JSON object".to_owned());
        }
        match self {
            Self::Chat => chat::read(body),
            Self::Responses => responses::read(body),
            Self::Anthropic => anthropic::read(body),
            Self::Gemini => gemini::read(body),
        }
    }

    #[must_use]
    pub(crate) fn whole(self, reply: &Reply) -> Value {
        match self {
            Self::Chat => chat::whole(reply),
            Self::Responses => responses::whole(reply),
            Self::Anthropic => anthropic::whole(reply),
            Self::Gemini => gemini::whole(reply),
        }
    }

    /// The frames of a stream, each as it is written.
    #[must_use]
    pub(crate) fn events(self, reply: &Reply) -> Vec<Vec<u8>> {
        match self {
            Self::Chat => chat::events(reply),
            Self::Responses => named(&responses::events(reply)),
            Self::Anthropic => named(&anthropic::events(reply)),
            Self::Gemini => gemini::chunks(reply).iter().map(|chunk| frame(None, chunk)).collect(),
        }
    }

    /// A stream as the elements of a JSON array.
    #[must_use]
    pub(crate) fn array(self, reply: &Reply) -> Vec<Vec<u8>> {
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

    #[must_use]
    pub(crate) fn error(self, error: &ErrorAnswer) -> Value {
        let (message, usual) = (error.message(), error.wording());
        let kind = |usual: &str| error.kind.clone().unwrap_or_else(|| usual.to_owned());
        match self {
            Self::Chat | Self::Responses => {
                let (openai, code) = usual.openai;
                let code = error.code.as_deref().or(error.kind.as_deref()).or(code);
                json!({"error": {"message": message, "type": kind(openai), "param": null, "code": code}})
            }
            Self::Anthropic => {
                json!({"type": "error", "error": {"type": kind(usual.anthropic), "message": message}})
            }
            Self::Gemini => {
                json!({"error": {"code": error.status, "message": message, "status": kind(usual.google)}})
            }
        }
    }

    /// The answer to "how many tokens is this?".
    #[must_use]
    pub(crate) fn token_count(self, tokens: u64) -> Value {
        match self {
            Self::Gemini => json!({"totalTokens": tokens}),
            Self::Chat | Self::Responses | Self::Anthropic => json!({"input_tokens": tokens}),
        }
    }
}

impl Reply {
    /// The text as a model would stream it: word by word.
    fn words(&self) -> impl Iterator<Item = &str> {
        self.text.as_deref().unwrap_or_default().split_inclusive(' ')
    }

    fn total_tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens
    }
}

/// Frames with an `event:` line, named by their own `type`.
fn named(events: &[Value]) -> Vec<Vec<u8>> {
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

/// The arguments as an object, for dialects that have them so.
fn object(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Json(text) => match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) => object,
            // What a script wrote wrong on purpose must still arrive.
            _ => json!({"arguments": text}),
        },
        Arguments::Freeform(text) => json!({"input": text}),
    }
}

/// Text in two halves, as an example of pieces that only together are JSON.
fn halves(text: &str) -> impl Iterator<Item = &str> {
    let middle = (text.len() / 2..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    let (first, second) = text.split_at(middle);
    [first, second].into_iter().filter(|half| !half.is_empty())
}

/// The texts of `content`, which is a string or a list of parts.
fn texts(content: &Value) -> Vec<String> {
    match content {
        Value::String(text) => vec![text.clone()],
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).map(str::to_owned).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

/// The list that a request must have.
fn list<'a>(body: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    body[name].as_array().ok_or_else(|| format!("missing `{name}`: a list of what was said so far"))
}

fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

fn model(body: &Value) -> Option<String> {
    body["model"].as_str().filter(|model| !model.is_empty()).map(str::to_owned)
}

/// What an entry of the history is when only its role and its texts matter.
fn said(role: &str, texts: Vec<String>) -> Entry {
    match role {
        "user" => Entry::User(texts),
        "assistant" | "model" => Entry::Assistant(texts),
        _ => Entry::Instructions(texts),
    }
}

#[cfg(test)]
mod tests;
