//! The encoders of an answer: a stream of responses with a few parts each, or one response with all parts.
//!
//! Both get their parts from [`PartReader`], so they agree.

use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use trunkline_core::event::{Answer, Event, Finish, Usage};
use trunkline_core::secret::Secrets;
use trunkline_wire::error::ApiError;
use trunkline_wire::response::Trace;
use trunkline_wire::stream::Stream;

use super::error;
use super::pieces::{OutputPart, PartReader};
use super::syntax::{StreamSyntax, escape_line_ends};
use crate::answer::WholeAnswer;
use crate::answer::streaming::{Frames, is_visible};
use crate::dialect::RunHead;
use crate::dialect::json::{json as append_json, member};
use crate::dialect::reasoning::Reasoning;

/// Encoder of a streamed answer.
pub(crate) struct ResponseFrames<S> {
    trace: Trace,
    secrets: Arc<Secrets>,
    reader: PartReader,
    frame: FrameWriter<S>,
}

/// Encoder of a whole answer.
pub(crate) struct WholeResponse {
    reader: PartReader,
    parts: Vec<Value>,
    head: Vec<u8>,
}

/// Writer of the objects of a stream.
struct FrameWriter<S> {
    /// The members that every object has, each after a comma.
    head: Vec<u8>,
    /// From the end of a text to the end of its object.
    after_text: Vec<u8>,
    /// Whether nothing has been written.
    is_empty: bool,
    syntax: PhantomData<S>,
}

/// Beginning of an object, up to its parts.
const BEFORE_PARTS: &[u8] = b"{\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[";

/// The same, up to a text or a thought.
const BEFORE_TEXT: &[u8] = b"{\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":";
const BEFORE_THOUGHT: &[u8] =
    b"{\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"thought\":true,\"text\":";

/// From the end of the parts to the members that every object has.
const AFTER_PARTS: &[u8] = b"]},\"index\":0}]";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageMetadata {
    prompt_token_count: u64,
    candidates_token_count: u64,
    total_token_count: u64,
    cached_content_token_count: u64,
}

/// The members that every response has, each after a comma.
fn head(run: &RunHead, model: &str) -> Vec<u8> {
    let mut head = Vec::new();
    member(&mut head, "modelVersion", model);
    member(&mut head, "responseId", &run.id);
    head
}

impl<S: StreamSyntax> ResponseFrames<S> {
    pub(super) fn new(run: &RunHead, model: &str, reasoning: Reasoning, secrets: Arc<Secrets>) -> Self {
        let head = head(run, model);
        let after_text = [b"}", AFTER_PARTS, &head, b"}"].concat();
        let frame = FrameWriter { head, after_text, is_empty: true, syntax: PhantomData };
        Self { trace: Trace::default(), secrets, reader: PartReader::new(reasoning), frame }
    }

    fn finish(&mut self, answer: &Answer, out: &mut Vec<u8>) {
        let Self { reader, frame, .. } = self;
        reader.complete(answer, &mut |part| frame.part(&part, out));
        frame.object(out, |head, out| {
            let start = out.len();
            out.extend_from_slice(BEFORE_PARTS);
            // Google's last frame has an empty text, too.
            out.extend_from_slice(b"{\"text\":\"\"}]},\"finishReason\":");
            append_json(out, finish_reason(answer.finish));
            out.extend_from_slice(b",\"index\":0}]");
            member(out, "usageMetadata", &UsageMetadata::from(answer.usage));
            out.extend_from_slice(head);
            member(out, "trunkline", &self.trace.extension(Some(answer)));
            out.push(b'}');
            escape_line_ends(start, out);
        });
        S::end(out);
    }
}

impl<S: StreamSyntax> FrameWriter<S> {
    /// Appends an object that `write` appends. It gets the members that every object has.
    fn object(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&[u8], &mut Vec<u8>)) {
        S::before(std::mem::take(&mut self.is_empty), out);
        write(&self.head, out);
        S::after(out);
    }

    fn part(&mut self, part: &OutputPart<'_>, out: &mut Vec<u8>) {
        match part {
            OutputPart::Text(text) => self.text(BEFORE_TEXT, text, out),
            OutputPart::Thought(text) => self.text(BEFORE_THOUGHT, text, out),
            OutputPart::Call(call) => self.object(out, |head, out| {
                out.extend_from_slice(BEFORE_PARTS);
                let start = out.len();
                append_json(out, &call.part());
                escape_line_ends(start, out);
                out.extend_from_slice(AFTER_PARTS);
                out.extend_from_slice(head);
                out.push(b'}');
            }),
        }
    }

    /// Appends an object with one text. This is the hot path.
    fn text(&mut self, before: &[u8], text: &str, out: &mut Vec<u8>) {
        // Room for quotes, and for what the syntax adds.
        out.reserve(before.len() + text.len() + self.after_text.len() + 16);
        S::before(std::mem::take(&mut self.is_empty), out);
        out.extend_from_slice(before);
        let start = out.len();
        append_json(out, text);
        if !text.is_ascii() {
            escape_line_ends(start, out);
        }
        out.extend_from_slice(&self.after_text);
        S::after(out);
    }
}

impl<S: StreamSyntax> Frames for ResponseFrames<S> {
    const CONTENT_TYPE: &'static str = S::CONTENT_TYPE;

    fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream {
        self.trace.observe(event);
        let Self { reader, frame, .. } = self;
        reader.hear(event, &mut |part| frame.part(&part, out));
        match event.as_end() {
            Some(Ok(answer)) => {
                self.finish(answer, out);
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
        S::before_error(std::mem::take(&mut self.frame.is_empty), out);
        let start = out.len();
        error::write(error, out);
        escape_line_ends(start, out);
        S::after(out);
        S::end(out);
        Stream::Ended
    }

    fn opens(&self, event: &Event) -> bool {
        is_visible(event)
    }

    fn keep_alive(&mut self, _doing: Option<&str>, out: &mut Vec<u8>) {
        out.push(b'\n');
    }
}

impl WholeResponse {
    pub(super) fn new(run: &RunHead, model: &str, reasoning: Reasoning) -> Self {
        Self { reader: PartReader::new(reasoning), parts: Vec::new(), head: head(run, model) }
    }
}

impl WholeAnswer for WholeResponse {
    fn observe(&mut self, event: &Event) {
        let Self { reader, parts, .. } = self;
        reader.hear(event, &mut |part| add(parts, &part));
    }

    fn finish(mut self, trace: &Trace, answer: Answer) -> Vec<u8> {
        let Self { reader, parts, .. } = &mut self;
        reader.complete(&answer, &mut |part| add(parts, &part));
        if !self.reader.has_answer() {
            self.parts.push(json!({"text": ""}));
        }
        let mut out = b"{\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":".to_vec();
        append_json(&mut out, &self.parts);
        out.extend_from_slice(b"},\"finishReason\":");
        append_json(&mut out, finish_reason(answer.finish));
        out.extend_from_slice(b",\"index\":0}]");
        member(&mut out, "usageMetadata", &UsageMetadata::from(answer.usage));
        out.extend_from_slice(&self.head);
        member(&mut out, "trunkline", &trace.extension(Some(&answer)));
        out.push(b'}');
        out
    }
}

/// Adds a part to a list. Neighbouring texts become one.
fn add(parts: &mut Vec<Value>, part: &OutputPart<'_>) {
    let (text, thought) = match part {
        OutputPart::Text(text) => (*text, false),
        OutputPart::Thought(text) => (*text, true),
        OutputPart::Call(call) => return parts.push(call.part()),
    };
    if let Some(last) = parts.last_mut()
        && last.get("thought").is_some() == thought
        && let Some(Value::String(before)) = last.get_mut("text")
    {
        before.push_str(text);
        return;
    }
    parts.push(if thought { json!({"thought": true, "text": text}) } else { json!({"text": text}) });
}

const fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        // A call of a function is a regular end here.
        Finish::Stop | Finish::ToolCalls => "STOP",
        Finish::Length => "MAX_TOKENS",
        Finish::ContentFilter => "SAFETY",
    }
}

impl From<Usage> for UsageMetadata {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_token_count: usage.input_tokens,
            candidates_token_count: usage.output_tokens,
            total_token_count: usage.input_tokens.saturating_add(usage.output_tokens),
            cached_content_token_count: usage.cached_tokens,
        }
    }
}

#[cfg(test)]
#[path = "encoder_tests.rs"]
mod tests;
