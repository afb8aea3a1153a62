//! Events become a stream of chunks, ready to be sent: a state machine without clock or socket.
//!
//! A delta is the hot path: its frame is a ready-made beginning, one escaped string and a ready-made end. The few other
//! frames of an answer are serialised as [`Chunk`]s.

use std::io::{self, Write};
use std::sync::Arc;

use serde_json::Value;
use trunkline_core::event::{Answer, Event};
use trunkline_core::secret::Secrets;

use crate::chat::{Chunk, ChunkChoice, Delta, FinishReason, TokenCounts};
use crate::error::ApiError;
use crate::response::{Head, Trace};
use crate::sse;
use crate::told::Told;

/// How much of a tool's input or output is shown, in bytes: it is a sign of life, not a transcript.
const MAX_ACTIVITY: usize = 200;

/// Writes the frames of one streamed answer.
#[derive(Debug)]
pub struct Chunks {
    pub trace: Trace,
    head: Head,
    usage: UsageChunk,
    secrets: Arc<Secrets>,
    /// From `data: {` to where the delta's members begin.
    before: Vec<u8>,
    /// From the end of the delta to the end of the frame.
    after: &'static [u8],
    role: Role,
    told: Told,
    /// Whether the reasoning shown so far ends inside a line.
    inside_line: bool,
}

/// Whether the client asked for a last chunk with the usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageChunk {
    Wanted,
    No,
}

/// Whether more may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Open,
    /// The body ends here.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Unsent,
    Sent,
}

#[derive(Debug, Clone, Copy)]
enum Member {
    Content,
    Reasoning,
}

impl Chunks {
    #[must_use]
    pub fn new(head: Head, usage: UsageChunk, secrets: Arc<Secrets>) -> Self {
        let mut before = b"data: {\"id\":".to_vec();
        json(&mut before, &head.id);
        before.extend_from_slice(b",\"object\":\"chat.completion.chunk\",\"created\":");
        json(&mut before, &head.created);
        before.extend_from_slice(b",\"model\":");
        json(&mut before, &head.model);
        before.extend_from_slice(b",\"choices\":[{\"index\":0,\"delta\":{");
        let after: &[u8] = match usage {
            UsageChunk::Wanted => b"},\"finish_reason\":null,\"logprobs\":null}],\"usage\":null}\n\n",
            UsageChunk::No => b"},\"finish_reason\":null,\"logprobs\":null}]}\n\n",
        };
        Self {
            trace: Trace::default(),
            head,
            usage,
            secrets,
            before,
            after,
            role: Role::Unsent,
            told: Told::default(),
            inside_line: false,
        }
    }

    /// Appends the frames that `event` is worth, possibly none.
    pub fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream {
        self.trace.observe(event);
        self.told.observe(event);
        match event {
            Event::Text { delta } => self.delta(Member::Content, delta, out),
            Event::Thinking { delta } => {
                self.delta(Member::Reasoning, delta, out);
                self.inside_line = !delta.is_empty() && !delta.ends_with('\n');
            }
            Event::ToolStarted { name, input, .. } => {
                self.line(&format!("[tool] {name} {}", compact(input)), out);
            }
            Event::ToolFinished { ok: false, output, .. } => {
                self.line(&format!("[tool] failed: {}", one_line(output)), out);
            }
            Event::Notice { message } => self.line(&format!("[notice] {}", one_line(message)), out),
            Event::ToolCall { index, id, name, arguments } => {
                self.call(*index, id.as_deref(), name.as_deref(), arguments, out);
            }
            Event::Started { .. } | Event::Workspace(_) | Event::Attempted(_) => {}
            Event::ToolFinished { ok: true, .. } | Event::Unknown { .. } => {}
            Event::Finished(answer) => {
                self.finish(answer, out);
                return Stream::Ended;
            }
            Event::Failed(failure) => {
                let error = ApiError::failed(failure, &self.secrets).of_run(&self.trace);
                return self.fail(&error, out);
            }
        }
        Stream::Open
    }

    /// Ends the stream with an error: no `finish_reason` and no `[DONE]`, so that no client takes it for an answer.
    pub fn fail(&mut self, error: &ApiError, out: &mut Vec<u8>) -> Stream {
        sse::data(out, &error.body());
        Stream::Ended
    }

    /// A line of its own among the reasoning.
    fn line(&mut self, line: &str, out: &mut Vec<u8>) {
        let start = if self.inside_line { "\n" } else { "" };
        self.delta(Member::Reasoning, &format!("{start}{line}\n"), out);
        self.inside_line = false;
    }

    fn delta(&mut self, member: Member, delta: &str, out: &mut Vec<u8>) {
        if delta.is_empty() {
            return;
        }
        self.open(out);
        let name: &[u8] = match member {
            Member::Content => b"\"content\":",
            Member::Reasoning => b"\"reasoning_content\":",
        };
        out.reserve(self.before.len() + name.len() + delta.len() + 2 + self.after.len());
        out.extend_from_slice(&self.before);
        out.extend_from_slice(name);
        json(out, &delta);
        out.extend_from_slice(self.after);
    }

    /// The role comes first and alone.
    fn open(&mut self, out: &mut Vec<u8>) {
        if self.role == Role::Unsent {
            self.role = Role::Sent;
            out.extend_from_slice(&self.before);
            out.extend_from_slice(b"\"role\":\"assistant\",\"content\":\"\"");
            out.extend_from_slice(self.after);
        }
    }

    /// A piece of a call, in the members a client puts it together from.
    fn call(&mut self, index: u32, id: Option<&str>, name: Option<&str>, arguments: &str, out: &mut Vec<u8>) {
        self.open(out);
        let mut function = serde_json::Map::new();
        function.extend(name.map(|name| ("name".to_owned(), name.into())));
        function.insert("arguments".to_owned(), arguments.into());
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
        self.open(out);
        if let Some(late) = self.told.missing(answer) {
            self.delta(Member::Content, &late, out);
        }
        let mut last = self.chunk(vec![ChunkChoice {
            index: 0,
            delta: Delta::default(),
            finish_reason: Some(FinishReason::from(answer.finish)),
            logprobs: (),
        }]);
        last.usage = (self.usage == UsageChunk::Wanted).then_some(None);
        last.trunkline = Some(self.trace.extension(Some(answer)));
        frame(&last, out);
        if self.usage == UsageChunk::Wanted {
            let usage = Some(Some(TokenCounts::from(answer.usage)));
            frame(&Chunk { usage, ..self.chunk(Vec::new()) }, out);
        }
        out.extend_from_slice(sse::DONE);
    }

    fn chunk(&self, choices: Vec<ChunkChoice>) -> Chunk {
        Chunk {
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

fn frame(chunk: &Chunk, out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    json(out, chunk);
    out.extend_from_slice(b"\n\n");
}

fn json<T: serde::Serialize>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("strings and numbers always serialise, and a Vec takes them");
}

/// The beginning of a tool's input. A tool may be given a whole file: no more than is shown is ever written.
fn compact(input: &Value) -> String {
    let mut shown = Shown(Vec::new());
    let whole = serde_json::to_writer(&mut shown, input).is_ok();
    let text = String::from_utf8_lossy(&shown.0);
    if whole { text.into_owned() } else { format!("{}…", text.trim_end_matches('\u{fffd}')) }
}

/// Takes [`MAX_ACTIVITY`] bytes and then fails.
struct Shown(Vec<u8>);

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_ACTIVITY - self.0.len();
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room { Err(io::ErrorKind::WriteZero.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn one_line(text: &str) -> String {
    let mut characters = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = characters.by_ref().take(MAX_ACTIVITY).collect();
    if characters.next().is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
