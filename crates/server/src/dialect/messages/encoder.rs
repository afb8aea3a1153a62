//! The encoder of an answer: events become blocks, and the blocks either the frames of a stream or one message.
//!
//! A stream and a whole answer are the work of this one state machine, so they agree.

use std::sync::Arc;

use serde::Serialize;
use trunkline_core::event::{Answer, Event, Finish, Usage};
use trunkline_core::secret::Secrets;
use trunkline_wire::error::ApiError;
use trunkline_wire::narration::{Narration, Piece};
use trunkline_wire::response::Trace;
use trunkline_wire::stream::Stream;

use super::content::{Content, Form};
use super::error;
use super::frames::{PING, frame};
use crate::answer::WholeAnswer;
use crate::answer::streaming::{Frames, is_visible};
use crate::dialect::RunHead;
use crate::dialect::json::{json, member};
use crate::dialect::reasoning::Reasoning;

pub(crate) struct MessageEncoder {
    trace: Trace,
    id: String,
    model: String,
    reasoning: Reasoning,
    secrets: Arc<Secrets>,
    narration: Narration,
    content: Content,
    form: Form,
    /// Whether the first frame has been written.
    opened: bool,
}

/// Tokens of an answer. Other than in our own count, cached input is no part of the input.
#[derive(Serialize)]
struct TokenCounts {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
}

#[derive(Serialize)]
struct Ending {
    stop_reason: Option<&'static str>,
    stop_sequence: (),
}

impl MessageEncoder {
    pub(super) fn new(run: &RunHead, model: String, reasoning: Reasoning, form: Form, secrets: Arc<Secrets>) -> Self {
        let run = run.id.replace('-', "");
        Self {
            trace: Trace::default(),
            id: ["msg_", &run].concat(),
            model,
            reasoning,
            secrets,
            narration: Narration::default(),
            content: Content::new(form, &run),
            form,
            opened: false,
        }
    }

    fn encode(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream {
        self.trace.observe(event);
        self.begin(out);
        match self.narration.hear(event) {
            Some(Piece::Text(delta)) => self.content.text(delta, out),
            Some(Piece::Reasoning(delta)) if self.reasoning == Reasoning::Shown => self.content.thinking(&delta, out),
            Some(Piece::Call { index, id, name, arguments }) => self.content.call(index, id, name, arguments, out),
            Some(Piece::Reasoning(_)) | None => {}
        }
        match event.as_end() {
            Some(Ok(answer)) => {
                self.complete(answer, out);
                if self.form == Form::Frames {
                    self.end(answer, out);
                }
                Stream::Ended
            }
            Some(Err(failure)) => {
                let error = ApiError::failed(failure, &self.secrets).of_run(&self.trace);
                self.fail(&error, out)
            }
            None => Stream::Open,
        }
    }

    /// Appends the first frame, once.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.opened, true) || self.form == Form::List {
            return;
        }
        frame(out, "message_start", |out| {
            out.extend_from_slice(b",\"message\":");
            self.head(out);
            out.extend_from_slice(b",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null");
            // The count of the input is in `message_delta`: no provider tells it before its end.
            member(out, "usage", &TokenCounts::from(Usage::default()));
            out.push(b'}');
        });
    }

    /// Appends the beginning of a message.
    fn head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":");
        json(out, &self.id);
        out.extend_from_slice(b",\"type\":\"message\",\"role\":\"assistant\"");
        member(out, "model", &self.model);
    }

    /// Adds the content that no event has brought, and closes the last block.
    fn complete(&mut self, answer: &Answer, out: &mut Vec<u8>) {
        if let Some(late) = self.narration.missing(answer) {
            self.content.text(&late, out);
        }
        if !self.content.has_calls() {
            for (number, call) in (0..).zip(&answer.calls) {
                self.content.call(number, Some(&call.id), Some(&call.name), &call.arguments, out);
            }
        }
        if !self.content.has_answer() {
            self.content.text("", out);
        }
        self.content.close(out);
    }

    /// Appends the last frames.
    fn end(&self, answer: &Answer, out: &mut Vec<u8>) {
        frame(out, "message_delta", |out| {
            member(out, "delta", &Ending { stop_reason: Some(stop_reason(answer.finish)), stop_sequence: () });
            member(out, "usage", &TokenCounts::from(answer.usage));
            member(out, "trunkline", &self.trace.extension(Some(answer)));
        });
        frame(out, "message_stop", |_| {});
    }
}

impl Frames for MessageEncoder {
    fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream {
        self.encode(event, out)
    }

    fn fail(&mut self, error: &ApiError, out: &mut Vec<u8>) -> Stream {
        out.extend_from_slice(b"event: error\ndata: ");
        error::write(error, None, out);
        out.extend_from_slice(b"\n\n");
        Stream::Ended
    }

    fn opens(&self, event: &Event) -> bool {
        is_visible(event)
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
    }

    fn keep_alive(&mut self, _doing: Option<&str>, out: &mut Vec<u8>) {
        out.extend_from_slice(PING);
    }
}

impl WholeAnswer for MessageEncoder {
    fn observe(&mut self, event: &Event) {
        if !event.is_end() {
            self.encode(event, &mut Vec::new());
        }
    }

    fn finish(mut self, trace: &Trace, answer: Answer) -> Vec<u8> {
        let mut out = Vec::new();
        self.complete(&answer, &mut out);
        self.head(&mut out);
        out.extend_from_slice(b",\"content\":[");
        out.extend_from_slice(self.content.list());
        out.push(b']');
        member(&mut out, "stop_reason", stop_reason(answer.finish));
        member(&mut out, "stop_sequence", &());
        member(&mut out, "usage", &TokenCounts::from(answer.usage));
        member(&mut out, "trunkline", &trace.extension(Some(&answer)));
        out.push(b'}');
        out
    }
}

const fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
        Finish::ContentFilter => "refusal",
        Finish::ToolCalls => "tool_use",
    }
}

impl From<Usage> for TokenCounts {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens.saturating_sub(usage.cached_tokens),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: usage.cached_tokens,
            output_tokens: usage.output_tokens,
        }
    }
}

#[cfg(test)]
#[path = "encoder_tests.rs"]
mod tests;
