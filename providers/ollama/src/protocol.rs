//! The provider protocol: the request on stdin and the output on stdout. Independent of Ollama.

use std::fmt;
use std::io::{self, Read, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

const PROVIDER: &str = "ollama";

/// Request on stdin. Unknown members are ignored, so that the protocol can be extended.
#[derive(Debug, Deserialize)]
pub(crate) struct ProviderRequest {
    pub(crate) prompt: String,
    pub(crate) system_prompt: Option<String>,
    /// Numbers are passed on as they were written. 0 is a valid value; an absent one leaves the choice to the model.
    pub(crate) max_tokens: Option<Number>,
    pub(crate) temperature: Option<Number>,
    pub(crate) top_p: Option<Number>,
    pub(crate) tools: Option<Vec<Value>>,
    pub(crate) context: Option<Vec<EarlierMessage>>,
    pub(crate) config: Option<Map<String, Value>>,
}

/// An earlier turn of the conversation.
#[derive(Debug, Deserialize)]
pub(crate) struct EarlierMessage {
    pub(crate) role: String,
    pub(crate) content: String,
}

impl ProviderRequest {
    pub(crate) fn read(mut stdin: impl Read) -> Result<Self, ProviderError> {
        let mut text = String::new();
        stdin.read_to_string(&mut text).map_err(|error| ProviderError::new(format!("cannot read stdin: {error}")))?;
        if text.trim().is_empty() {
            return Err(ProviderError::new("invalid request: stdin is empty; send {\"prompt\": \"…\"}"));
        }
        serde_json::from_str(&text).map_err(|error| ProviderError::new(format!("invalid request: {error}")))
    }
}

/// Complete answer of the model.
#[derive(Debug)]
pub(crate) struct ModelAnswer {
    pub(crate) text: String,
    pub(crate) summary: AnswerSummary,
}

/// Piece of a streamed answer; the last one has the summary.
#[derive(Debug)]
pub(crate) struct AnswerDelta {
    pub(crate) text: String,
    pub(crate) summary: Option<AnswerSummary>,
}

/// Data that is known once the model has finished.
#[derive(Debug, Serialize)]
pub(crate) struct AnswerSummary {
    pub(crate) tokens_used: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_tokens: Option<u64>,
    pub(crate) model: String,
    pub(crate) finish_reason: &'static str,
}

/// Output of `generate`.
#[derive(Debug, Serialize)]
pub(crate) struct GenerateOutput {
    content: String,
    #[serde(flatten)]
    summary: AnswerSummary,
    /// In nanoseconds.
    latency: u64,
    error: String,
    provider: &'static str,
}

impl GenerateOutput {
    pub(crate) fn new(answer: ModelAnswer, elapsed: Duration) -> Self {
        Self {
            content: answer.text,
            summary: answer.summary,
            latency: nanoseconds(elapsed),
            error: String::new(),
            provider: PROVIDER,
        }
    }

    pub(crate) fn failed(error: &ProviderError, elapsed: Duration) -> Self {
        let summary = AnswerSummary {
            tokens_used: 0,
            input_tokens: None,
            output_tokens: None,
            model: String::new(),
            finish_reason: "stop",
        };
        let error = error.to_string();
        Self { content: String::new(), summary, latency: nanoseconds(elapsed), error, provider: PROVIDER }
    }
}

/// One line of the output of `stream`.
#[derive(Debug, Serialize)]
pub(crate) struct StreamLine<'a> {
    /// The answer so far, including this piece.
    content: &'a str,
    delta: String,
    done: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    summary: Option<AnswerSummary>,
    error: String,
    timestamp: String,
}

impl<'a> StreamLine<'a> {
    pub(crate) fn new(content: &'a str, delta: AnswerDelta) -> Self {
        let done = delta.summary.is_some();
        Self { content, delta: delta.text, done, summary: delta.summary, error: String::new(), timestamp: now() }
    }

    pub(crate) fn failed(content: &'a str, error: &ProviderError) -> Self {
        Self { content, delta: String::new(), done: true, summary: None, error: error.to_string(), timestamp: now() }
    }
}

/// Error message: one line, written for people and for the gateway's classifier.
#[derive(Debug)]
pub(crate) struct ProviderError(String);

impl ProviderError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prints one JSON object as one line and flushes it, so that the reader of a stream gets each line at once.
pub(crate) fn print(object: &impl Serialize) -> Result<(), ProviderError> {
    let line =
        serde_json::to_string(object).map_err(|error| ProviderError::new(format!("cannot write JSON: {error}")))?;
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    written.map_err(|error| ProviderError::new(format!("cannot write to stdout: {error}")))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Current time in RFC 3339 format.
fn now() -> String {
    jiff::Timestamp::now().to_string()
}
