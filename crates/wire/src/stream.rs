//! Encoder that turns events into a stream of chunks: a state machine without clock or socket.
//!
//! Deltas are the hot path: a frame is a precomputed prefix, one escaped string and a constant suffix. The few other
//! frames of an answer are serialised as [`ChatChunk`]s.

use std::sync::Arc;

use trunkline_core::event::{Alternative, Answer, Event, Finish};
use trunkline_core::secret::Secrets;

use crate::chat::{CallFormat, ChatChunk, ChunkChoice, Delta, FinishReason, Logprobs, TokenCounts};
use crate::error::ApiError;
use crate::narration::{Narration, Piece};
use crate::response::{Head, Trace};
use crate::sse;

/// Writes the frames of one streamed answer.
#[derive(Debug)]
pub struct Chunks {
    pub trace: Trace,
    head: Head,
    /// Index of the choice.
    index: u32,
    usage: UsageChunk,
    secrets: Arc<Secrets>,
    /// Frame prefix, from `data: {` to the first member of the delta.
    before: Vec<u8>,
    /// Frame suffix, from the end of the delta.
    after: &'static [u8],
    role: RoleChunk,
    narration: Narration,
}

/// Whether the client asked for a last chunk with the usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageChunk {
    Wanted,
    No,
}

/// State of the stream after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Open,
    /// The response body is complete.
    Ended,
}

/// State of the first chunk, which has the role and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoleChunk {
    Unsent,
    Sent,
}

/// Member of the delta that a text belongs to.
#[derive(Debug, Clone, Copy)]
enum DeltaMember {
    Content,
    Reasoning,
}

impl Chunks {
    #[must_use]
    pub fn new(head: Head, usage: UsageChunk, secrets: Arc<Secrets>) -> Self {
        Self::of_choice(0, head, usage, secrets)
    }

    fn of_choice(index: u32, head: Head, usage: UsageChunk, secrets: Arc<Secrets>) -> Self {
        let mut before = b"data: {\"id\":".to_vec();
        json(&mut before, &head.id);
        before.extend_from_slice(b",\"object\":\"chat.completion.chunk\",\"created\":");
        json(&mut before, &head.created);
        before.extend_from_slice(b",\"model\":");
        json(&mut before, &head.model);
        before.extend_from_slice(b",\"choices\":[{\"index\":");
        json(&mut before, &index);
        before.extend_from_slice(b",\"delta\":{");
        let after: &[u8] = match usage {
            UsageChunk::Wanted => b"},\"finish_reason\":null,\"logprobs\":null}],\"usage\":null}\n\n",
            UsageChunk::No => b"},\"finish_reason\":null,\"logprobs\":null}]}\n\n",
        };
        Self {
            trace: Trace::default(),
            head,
            index,
            usage,
            secrets,
            before,
            after,
            role: RoleChunk::Unsent,
            narration: Narration::default(),
        }
    }

    /// Appends the frames for `event`, possibly none.
    pub fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream {
        self.trace.observe(event);
        match self.narration.hear(event) {
            Some(Piece::Text(delta)) => self.delta(DeltaMember::Content, delta, out),
            Some(Piece::Reasoning(delta)) => self.delta(DeltaMember::Reasoning, &delta, out),
            Some(Piece::Call { index, id, name, arguments }) => self.call(index, id, name, arguments, out),
            None => {}
        }
        if let Event::Finished(answer) = event {
            self.finish(answer, out);
            return Stream::Ended;
        }
        if let Event::Failed(failure) = event {
            let error = ApiError::failed(failure, &self.secrets).of_run(&self.trace);
            return self.fail(&error, out);
        }
        Stream::Open
    }

    /// Ends the stream with an error: no `finish_reason` and no `[DONE]`, so that no client mistakes it for a complete
    /// answer.
    pub fn fail(&mut self, error: &ApiError, out: &mut Vec<u8>) -> Stream {
        sse::data(out, &error.body());
        Stream::Ended
    }

    fn delta(&mut self, member: DeltaMember, delta: &str, out: &mut Vec<u8>) {
        self.send_role(out);
        let name: &[u8] = match member {
            DeltaMember::Content => b"\"content\":",
            DeltaMember::Reasoning => b"\"reasoning_content\":",
        };
        out.reserve(self.before.len() + name.len() + delta.len() + 2 + self.after.len());
        out.extend_from_slice(&self.before);
        out.extend_from_slice(name);
        json(out, &delta);
        out.extend_from_slice(self.after);
    }

    /// Sends the chunk with the role, once.
    fn send_role(&mut self, out: &mut Vec<u8>) {
        if self.role == RoleChunk::Unsent {
            self.role = RoleChunk::Sent;
            out.extend_from_slice(&self.before);
            out.extend_from_slice(b"\"role\":\"assistant\",\"content\":\"\"");
            out.extend_from_slice(self.after);
        }
    }

    /// Appends a piece of a tool call, as clients of OpenAI's API assemble it.
    fn call(&mut self, index: u32, id: Option<&str>, name: Option<&str>, arguments: &str, out: &mut Vec<u8>) {
        self.send_role(out);
        let mut function = serde_json::Map::new();
        function.extend(name.map(|name| ("name".to_owned(), name.into())));
        function.insert("arguments".to_owned(), arguments.into());
        if self.head.calls == CallFormat::FunctionCall {
            // There is no place for a second call.
            if index == 0 {
                out.extend_from_slice(&self.before);
                out.extend_from_slice(b"\"function_call\":");
                json(out, &function);
                out.extend_from_slice(self.after);
            }
            return;
        }
        let mut call = serde_json::Map::new();
        call.insert("index".to_owned(), index.into());
        if let Some(id) = id {
            call.insert("id".to_owned(), id.into());
            call.insert("type".to_owned(), "function".into());
        }
        call.insert("function".to_owned(), function.into());
        out.extend_from_slice(&self.before);
        out.extend_from_slice(b"\"tool_calls\":[");
        json(out, &call);
        out.push(b']');
        out.extend_from_slice(self.after);
    }

    fn finish(&mut self, answer: &Answer, out: &mut Vec<u8>) {
        self.send_role(out);
        if let Some(late) = self.narration.missing(answer) {
            self.delta(DeltaMember::Content, &late, out);
        }
        for (index, alternative) in (1..).zip(&answer.alternatives) {
            Self::of_choice(index, self.head.clone(), self.usage, Arc::clone(&self.secrets))
                .alternative(alternative, out);
        }
        let mut last = self.last_chunk(answer.finish, answer.logprobs.as_ref());
        last.trunkline = Some(self.trace.extension(Some(answer)));
        frame(&last, out);
        if self.usage == UsageChunk::Wanted {
            let usage = Some(Some(TokenCounts::from(answer.usage)));
            frame(&ChatChunk { usage, ..self.chunk(Vec::new()) }, out);
        }
        out.extend_from_slice(sse::DONE);
    }

    /// Appends all frames of a choice that has no events of its own.
    fn alternative(&mut self, answer: &Alternative, out: &mut Vec<u8>) {
        self.send_role(out);
        if !answer.content.is_empty() {
            self.delta(DeltaMember::Content, &answer.content, out);
        }
        for (index, call) in (0..).zip(&answer.calls) {
            self.call(index, Some(&call.id), Some(&call.name), &call.arguments, out);
        }
        frame(&self.last_chunk(answer.finish, answer.logprobs.as_ref()), out);
    }

    /// The chunk that ends the choice.
    fn last_chunk(&self, finish: Finish, logprobs: Option<&String>) -> ChatChunk {
        let choice = ChunkChoice {
            index: self.index,
            delta: Delta::default(),
            finish_reason: Some(FinishReason::of(finish, self.head.calls)),
            logprobs: logprobs.cloned().and_then(Logprobs::new),
        };
        let usage = (self.usage == UsageChunk::Wanted).then_some(None);
        ChatChunk { usage, ..self.chunk(vec![choice]) }
    }

    fn chunk(&self, choices: Vec<ChunkChoice>) -> ChatChunk {
        ChatChunk {
            id: self.head.id.clone(),
            object: "chat.completion.chunk".to_owned(),
            created: self.head.created,
            model: self.head.model.clone(),
            choices,
            usage: None,
            trunkline: None,
        }
    }
}

fn frame(chunk: &ChatChunk, out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    json(out, chunk);
    out.extend_from_slice(b"\n\n");
}

fn json<T: serde::Serialize>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("strings and numbers always serialise, and a Vec takes them");
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
