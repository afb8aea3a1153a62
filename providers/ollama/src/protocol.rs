//! The provider's side of the protocol: what comes in on stdin and what goes out on stdout. Knows nothing of Ollama.

use std::fmt;
use std::io::{self, Read, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

const PROVIDER: &str = "ollama";

/// What is asked. Members we do not know are passed over: the protocol may grow.
#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    pub(crate) prompt: String,
    pub(crate) system_prompt: Option<String>,
    /// Numbers stay as they were written, zeros too: 0 is a temperature, absent is the model's own choice.
    pub(crate) max_tokens: Option<Number>,
    pub(crate) temperature: Option<Number>,
    pub(crate) top_p: Option<Number>,
    pub(crate) tools: Option<Vec<Value>>,
    pub(crate) context: Option<Vec<Message>>,
    pub(crate) config: Option<Map<String, Value>>,
}

/// An earlier turn of the conversation.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) content: String,
}

impl Request {
    pub(crate) fn read(mut stdin: impl Read) -> Result<Self, Failure> {
        let mut text = String::new();
        stdin.read_to_string(&mut text).map_err(|error| Failure::new(format!("cannot read stdin: {error}")))?;
        if text.trim().is_empty() {
            return Err(Failure::new("invalid request: stdin is empty; send {\"prompt\": \"…\"}"));
        }
        serde_json::from_str(&text).map_err(|error| Failure::new(format!("invalid request: {error}")))
    }
}

/// A complete answer, before it is told in the protocol's words.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) end: End,
}

/// A piece of an answer; the last one has the end.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) end: Option<End>,
}

/// What is known once the model has finished.
#[derive(Debug, Serialize)]
pub(crate) struct End {
    pub(crate) tokens_used: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_tokens: Option<u64>,
    pub(crate) model: String,
    pub(crate) finish_reason: &'static str,
}

/// What `generate` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Response {
    content: String,
    #[serde(flatten)]
    end: End,
    /// In nanoseconds.
    latency: u64,
    error: String,
    provider: &'static str,
}

impl Response {
    pub(crate) fn new(answer: Answer, took: Duration) -> Self {
        Self {
            content: answer.text,
            end: answer.end,
            latency: nanoseconds(took),
            error: String::new(),
            provider: PROVIDER,
        }
    }

    pub(crate) fn failed(failure: &Failure, took: Duration) -> Self {
        let end = End {
            tokens_used: 0,
            input_tokens: None,
            output_tokens: None,
            model: String::new(),
            finish_reason: "stop",
        };
        let error = failure.to_string();
        Self { content: String::new(), end, latency: nanoseconds(took), error, provider: PROVIDER }
    }
}

/// One line of what `stream` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Chunk<'a> {
    /// All of the answer so far, this piece included.
    content: &'a str,
    delta: String,
    done: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    end: Option<End>,
    error: String,
    timestamp: String,
}

impl<'a> Chunk<'a> {
    pub(crate) fn new(content: &'a str, piece: Piece) -> Self {
        let done = piece.end.is_some();
        Self { content, delta: piece.text, done, end: piece.end, error: String::new(), timestamp: now() }
    }

    pub(crate) fn failed(content: &'a str, failure: &Failure) -> Self {
        Self { content, delta: String::new(), done: true, end: None, error: failure.to_string(), timestamp: now() }
    }
}

/// What went wrong, in one line that a person and a classifier can read.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One JSON object, one line, at once: whoever reads a stream wants each line when it is there.
pub(crate) fn print(object: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(object).map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    written.map_err(|error| Failure::new(format!("cannot write to stdout: {error}")))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The time as RFC 3339 writes it.
fn now() -> String {
    jiff::Timestamp::now().to_string()
}
