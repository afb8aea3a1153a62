//! The encoder of an answer: events become lines of a stream, or one object. A line is a precomputed prefix, one escaped string and
//! a constant suffix.
//!
//! Calls of the client's tools are complete objects here, so they are written at the end, in a line of their own.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use trunkline_core::event::{Answer, Event, Finish, ToolCall};
use trunkline_core::secret::Secrets;
use trunkline_wire::chat::Extension;
use trunkline_wire::error::ApiError;
use trunkline_wire::narration::{Narration, Piece};
use trunkline_wire::response::Trace;
use trunkline_wire::stream::Stream;

use super::calls::call_objects;
use super::errors::error_body;
use super::sent_calls::ConversationCalls;
use super::settings::Thinking;
use super::times::{nanoseconds, rfc3339};
use crate::answer::WholeAnswer;
use crate::answer::streaming::{Frames, is_visible};

/// Content type of a stream.
pub(super) const NDJSON: &str = "application/x-ndjson";

/// Shape of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A `message`.
    Chat,
    /// A `response`, which is a text.
    Generate,
}

pub(crate) struct LineEncoder {
    trace: Trace,
    shape: Shape,
    thinking: Thinking,
    secrets: Arc<Secrets>,
    /// Beginning of every line, up to the value of the text.
    before: Vec<u8>,
    narration: Narration,
    /// Reasoning of a whole answer so far.
    reasoning: String,
    /// Place where the ids of calls are remembered.
    sent_calls: Option<ConversationCalls>,
}

/// Text, reasoning and calls of a line.
#[derive(Default)]
struct Line<'a> {
    text: &'a str,
    thinking: Option<&'a str>,
    calls: &'a [ToolCall],
}

/// The members of the last line, or of a whole answer.
#[derive(Serialize)]
struct End {
    done_reason: &'static str,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: u64,
    prompt_eval_duration: u64,
    eval_count: u64,
    eval_duration: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Box<RawValue>>,
    trunkline: Extension,
}

/// Log probabilities in OpenAI's format. Ollama has the tokens alone.
#[derive(Deserialize)]
struct TokenList {
    content: Box<RawValue>,
}

impl Shape {
    /// Member of the request that an answer answers.
    pub(super) const fn prompt_member(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Generate => "prompt",
        }
    }

    const fn open(self) -> &'static [u8] {
        match self {
            Self::Chat => b",\"message\":{\"role\":\"assistant\",\"content\":",
            Self::Generate => b",\"response\":",
        }
    }

    const fn close(self) -> &'static [u8] {
        match self {
            Self::Chat => b"}",
            Self::Generate => b"",
        }
    }
}

impl LineEncoder {
    /// `created` is the start of the run in seconds since 1970.
    pub(super) fn new(created: u64, model: &str, shape: Shape, thinking: Thinking, secrets: Arc<Secrets>) -> Self {
        let mut before = b"{\"model\":".to_vec();
        json(&mut before, &model);
        before.extend_from_slice(b",\"created_at\":");
        json(&mut before, &rfc3339(created));
        before.extend_from_slice(shape.open());
        let (trace, narration) = (Trace::default(), Narration::default());
        Self { trace, shape, thinking, secrets, before, narration, reasoning: String::new(), sent_calls: None }
    }

    /// Remembers the ids of the calls in the answer.
    pub(super) fn remembering(mut self, calls: Option<ConversationCalls>) -> Self {
        self.sent_calls = calls;
        self
    }

    fn line(&self, line: &Line<'_>, out: &mut Vec<u8>) {
        self.members(line, out);
        out.extend_from_slice(b",\"done\":false}\n");
    }

    fn last_line(&self, line: &Line<'_>, answer: &Answer, out: &mut Vec<u8>) {
        self.members(line, out);
        out.extend_from_slice(b",\"done\":true");
        let start = out.len();
        json(out, &self.end(answer));
        // The members go into the object that is open.
        out[start] = b',';
    }

    fn members(&self, line: &Line<'_>, out: &mut Vec<u8>) {
        out.reserve(self.before.len() + line.text.len() + line.thinking.map_or(0, str::len) + 64);
        out.extend_from_slice(&self.before);
        json(out, &line.text);
        if let Some(thinking) = line.thinking {
            out.extend_from_slice(b",\"thinking\":");
            json(out, &thinking);
        }
        if !line.calls.is_empty() && self.shape == Shape::Chat {
            if let Some(sent) = &self.sent_calls {
                sent.remember(line.calls);
            }
            out.extend_from_slice(b",\"tool_calls\":");
            json(out, &call_objects(line.calls));
        }
        out.extend_from_slice(self.shape.close());
    }

    fn end(&self, answer: &Answer) -> End {
        let attempts = &self.trace.attempts;
        let total: Duration = attempts.iter().map(|attempt| attempt.duration).sum();
        let last = attempts.last().map(|attempt| attempt.duration).unwrap_or_default();
        End {
            done_reason: match answer.finish {
                Finish::Stop | Finish::ToolCalls => "stop",
                Finish::Length => "length",
                Finish::ContentFilter => "content_filter",
            },
            total_duration: nanoseconds(total),
            // Time that was spent before the attempt that answered.
            load_duration: nanoseconds(total.saturating_sub(last)),
            prompt_eval_count: answer.usage.input_tokens,
            prompt_eval_duration: 0,
            eval_count: answer.usage.output_tokens,
            eval_duration: nanoseconds(last),
            logprobs: tokens(answer),
            trunkline: self.trace.extension(Some(answer)),
        }
    }
}

impl Frames for LineEncoder {
    const CONTENT_TYPE: &'static str = NDJSON;

    fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream {
        self.trace.observe(event);
        match self.narration.hear(event) {
            Some(Piece::Text(text)) => self.line(&Line { text, ..Line::default() }, out),
            Some(Piece::Reasoning(delta)) if self.thinking == Thinking::Shown => {
                self.line(&Line { thinking: Some(&delta), ..Line::default() }, out);
            }
            Some(Piece::Reasoning(_) | Piece::Call { .. }) | None => {}
        }
        match event.as_end() {
            Some(Ok(answer)) => {
                if let Some(late) = self.narration.missing(answer) {
                    self.line(&Line { text: &late, ..Line::default() }, out);
                }
                if !answer.calls.is_empty() {
                    self.line(&Line { calls: &answer.calls, ..Line::default() }, out);
                }
                self.last_line(&Line::default(), answer, out);
                out.push(b'\n');
                Stream::Ended
            }
            Some(Err(failure)) => {
                let error = ApiError::failed(failure, &self.secrets).of_run(&self.trace);
                self.fail(&error, out)
            }
            None => Stream::Open,
        }
    }

    fn fail(&mut self, error: &ApiError, out: &mut Vec<u8>) -> Stream {
        out.extend_from_slice(error_body(error).as_bytes());
        out.push(b'\n');
        Stream::Ended
    }

    fn opens(&self, event: &Event) -> bool {
        is_visible(event)
    }

    /// A line without text. Clients parse every line, so there is no place for a comment.
    fn keep_alive(&mut self, _doing: Option<&str>, out: &mut Vec<u8>) {
        self.line(&Line::default(), out);
    }
}

impl WholeAnswer for LineEncoder {
    fn observe(&mut self, event: &Event) {
        if let Some(Piece::Reasoning(delta)) = self.narration.hear(event)
            && self.thinking == Thinking::Shown
        {
            self.reasoning.push_str(&delta);
        }
    }

    fn finish(mut self, trace: &Trace, answer: Answer) -> Vec<u8> {
        self.trace = trace.clone();
        let mut out = Vec::new();
        let thinking = Some(self.reasoning.as_str()).filter(|reasoning| !reasoning.is_empty());
        self.last_line(&Line { text: &answer.content, thinking, calls: &answer.calls }, &answer, &mut out);
        out
    }
}

fn tokens(answer: &Answer) -> Option<Box<RawValue>> {
    serde_json::from_str::<TokenList>(answer.logprobs.as_deref()?).ok().map(|list| list.content)
}

fn json<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("strings and numbers always serialise, and a Vec takes them");
}

#[cfg(test)]
#[path = "encoder_tests.rs"]
mod tests;
