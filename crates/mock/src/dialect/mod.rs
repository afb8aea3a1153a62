//! API dialects of the mock, one file each: pure functions that parse a request's JSON into a [`MockRequest`], and
//! render a [`MockReply`] as JSON or as the frames of a stream.

mod anthropic;
mod chat;
mod exchange;
mod gemini;
mod responses;

use serde_json::{Value, json};

use crate::fault::ScriptedError;

pub(crate) use chat::MODEL;
use exchange::frame;
pub(crate) use exchange::{MockReply, MockRequest};

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

/// Renders frames with an `event:` line that repeats the `type` of the payload.
fn named_frames(events: &[Value]) -> Vec<Vec<u8>> {
    events.iter().map(|event| frame(event["type"].as_str(), event)).collect()
}

#[cfg(test)]
mod tests;
