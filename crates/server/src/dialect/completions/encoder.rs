//! The encoder of a completion: events become chunks of a stream, or one object. A chunk is a precomputed prefix, one escaped string
//! and a constant suffix.

use std::sync::Arc;

use serde::Serialize;
use trunkline_core::event::{Answer, Event, Finish};
use trunkline_core::secret::Secrets;
use trunkline_wire::chat::{Extension, TokenCounts};
use trunkline_wire::error::ApiError;
use trunkline_wire::narration::{Narration, Piece};
use trunkline_wire::response::{Head, Trace};
use trunkline_wire::sse;
use trunkline_wire::stream::{Stream, UsageChunk};

use crate::answer::WholeAnswer;
use crate::answer::streaming::{Frames, is_visible};

const OBJECT: &str = "text_completion";

pub(crate) struct TextEncoder {
    trace: Trace,
    head: Head,
    usage: UsageChunk,
    /// The prompt, until it has been written.
    echo: Option<String>,
    secrets: Arc<Secrets>,
    /// Beginning of every chunk, up to the value of the text.
    before: Vec<u8>,
    /// End of every chunk but the last.
    after: &'static [u8],
    narration: Narration,
}

#[derive(Serialize)]
struct TextCompletion<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [TextChoice<'a>],
    /// Absent from a chunk unless the client asked for it; then null in every chunk but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<TokenCounts>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trunkline: Option<Extension>,
}

#[derive(Serialize)]
struct TextChoice<'a> {
    text: &'a str,
    index: u32,
    logprobs: (),
    finish_reason: &'static str,
}

impl TextEncoder {
    pub(super) fn new(head: Head, usage: UsageChunk, echo: Option<String>, secrets: Arc<Secrets>) -> Self {
        let mut before = b"data: {\"id\":".to_vec();
        json(&mut before, &head.id);
        before.extend_from_slice(b",\"object\":\"text_completion\",\"created\":");
        json(&mut before, &head.created);
        before.extend_from_slice(b",\"model\":");
        json(&mut before, &head.model);
        before.extend_from_slice(b",\"choices\":[{\"text\":");
        let after: &[u8] = match usage {
            UsageChunk::Wanted => b",\"index\":0,\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n",
            UsageChunk::No => b",\"index\":0,\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        };
        let (trace, narration) = (Trace::default(), Narration::default());
        Self { trace, head, usage, echo, secrets, before, after, narration }
    }

    fn delta(&mut self, text: &str, out: &mut Vec<u8>) {
        if let Some(prompt) = self.echo.take() {
            self.chunk(&prompt, out);
        }
        self.chunk(text, out);
    }

    fn chunk(&self, text: &str, out: &mut Vec<u8>) {
        out.reserve(self.before.len() + text.len() + 2 + self.after.len());
        out.extend_from_slice(&self.before);
        json(out, &text);
        out.extend_from_slice(self.after);
    }

    fn finish_stream(&mut self, answer: &Answer, out: &mut Vec<u8>) {
        if let Some(late) = self.narration.missing(answer) {
            self.delta(&late, out);
        }
        if let Some(prompt) = self.echo.take() {
            self.chunk(&prompt, out);
        }
        let wanted = self.usage == UsageChunk::Wanted;
        let choice = TextChoice::new("", answer.finish);
        let extension = self.trace.extension(Some(answer));
        frame(out, &self.object(&[choice], wanted.then_some(None), Some(extension)));
        if wanted {
            frame(out, &self.object(&[], Some(Some(answer.usage.into())), None));
        }
        out.extend_from_slice(sse::DONE);
    }

    fn object<'a>(
        &'a self,
        choices: &'a [TextChoice<'a>],
        usage: Option<Option<TokenCounts>>,
        trunkline: Option<Extension>,
    ) -> TextCompletion<'a> {
        let Head { id, created, model, calls: _ } = &self.head;
        TextCompletion { id, object: OBJECT, created: *created, model, choices, usage, trunkline }
    }
}

impl<'a> TextChoice<'a> {
    fn new(text: &'a str, finish: Finish) -> Self {
        let finish_reason = match finish {
            // A request for a completion has no tools to call.
            Finish::Stop | Finish::ToolCalls => "stop",
            Finish::Length => "length",
            Finish::ContentFilter => "content_filter",
        };
        Self { text, index: 0, logprobs: (), finish_reason }
    }
}

impl Frames for TextEncoder {
    fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream {
        self.trace.observe(event);
        if let Some(Piece::Text(text)) = self.narration.hear(event) {
            self.delta(text, out);
        }
        match event.as_end() {
            Some(Ok(answer)) => {
                self.finish_stream(answer, out);
                Stream::Ended
            }
            Some(Err(failure)) => {
                let error = ApiError::failed(failure, &self.secrets).of_run(&self.trace);
                self.fail(&error, out)
            }
            None => Stream::Open,
        }
    }

    /// No `finish_reason` and no `[DONE]`, so that no client mistakes it for a complete answer.
    fn fail(&mut self, error: &ApiError, out: &mut Vec<u8>) -> Stream {
        sse::data(out, &error.body());
        Stream::Ended
    }

    fn opens(&self, event: &Event) -> bool {
        is_visible(event)
    }
}

impl WholeAnswer for TextEncoder {
    fn finish(mut self, trace: &Trace, answer: Answer) -> Vec<u8> {
        let mut text = self.echo.take().unwrap_or_default();
        text.push_str(&answer.content);
        let choice = TextChoice::new(&text, answer.finish);
        let (usage, extension) = (answer.usage.into(), trace.extension(Some(&answer)));
        let mut out = Vec::new();
        json(&mut out, &self.object(&[choice], Some(Some(usage)), Some(extension)));
        out
    }
}

fn frame(out: &mut Vec<u8>, chunk: &TextCompletion<'_>) {
    out.extend_from_slice(b"data: ");
    json(out, chunk);
    out.extend_from_slice(b"\n\n");
}

fn json<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("strings and numbers always serialise, and a Vec takes them");
}

#[cfg(test)]
#[path = "encoder_tests.rs"]
mod tests;
