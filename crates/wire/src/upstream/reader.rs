//! Decoder for the body of an upstream's answer: bytes in, however they are split, events out. It never fails: a frame
//! that cannot be parsed becomes [`Event::Unknown`], and an incomplete answer ends with [`Event::Failed`].
//!
//! The first character tells whether the body is a stream or one object; the request does not, because some servers
//! ignore `stream` and some proxies buffer.

use serde_json::value::RawValue;
use trunkline_core::event::{Answer, Event, Finish, Usage};
use trunkline_core::failure::{Category, Failure, FailureRule};

use super::calls::CallAssembler;
use super::chunk::{UpstreamChoice, UpstreamChunk};
use super::failure::{in_band, summarize};
use super::logprobs::LogprobsAssembler;
use crate::sse;

/// Maximum size of a single frame.
const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

/// Maximum size of an answer.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Length of the excerpt from a body (in bytes) or a frame (in characters) that cannot be parsed.
const MAX_EXCERPT: usize = 2000;

/// Decoder for one answer.
#[derive(Debug)]
pub struct UpstreamReader {
    rules: Vec<FailureRule>,
    format: BodyFormat,
    /// The beginning of the body, for the error message if the body is not an answer.
    head: Vec<u8>,
    model: Option<String>,
    content: String,
    calls: CallAssembler,
    logprobs: LogprobsAssembler,
    usage: Option<Usage>,
    finish: Option<Finish>,
    /// A choice has arrived: there is an answer, though it may be empty.
    answered: bool,
    /// A frame or a completion has arrived: the upstream implements the API.
    recognized: bool,
    done: bool,
    failure: Option<Failure>,
}

#[derive(Debug)]
enum BodyFormat {
    Unknown,
    Stream(sse::SseDecoder),
    Whole(Vec<u8>),
}

impl UpstreamReader {
    /// Creates a reader that classifies failures by the upstream's own `rules` first.
    #[must_use]
    pub fn new(rules: &[FailureRule]) -> Self {
        Self {
            rules: rules.to_vec(),
            format: BodyFormat::Unknown,
            head: Vec::new(),
            model: None,
            content: String::new(),
            calls: CallAssembler::default(),
            logprobs: LogprobsAssembler::default(),
            usage: None,
            finish: None,
            answered: false,
            recognized: false,
            done: false,
            failure: None,
        }
    }

    /// Returns the events that `bytes` completes.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        if matches!(self.format, BodyFormat::Unknown) {
            let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xEF\xBB\xBF".contains(byte);
            let Some(start) = bytes.iter().position(|byte| !blank(byte)) else { return events };
            bytes = &bytes[start..];
            self.format = match bytes[0] {
                b'{' | b'[' => BodyFormat::Whole(Vec::new()),
                _ => BodyFormat::Stream(sse::SseDecoder::default()),
            };
        }
        let room = MAX_EXCERPT.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        // In slices: only the frames of one slice are held at a time, and decoding stops within a slice of the end.
        for slice in bytes.chunks(64 * 1024) {
            if self.ended() {
                break;
            }
            self.take(slice, &mut events);
        }
        events
    }

    /// Whether the answer has ended, so that there is no need to wait for the end of the connection.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.done || self.failure.is_some()
    }

    /// Whether the answer itself is complete: only the usage and the end marker may follow.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Returns the last events, once the body has ended; the very last one is `Finished` or `Failed`. If the upstream
    /// reported no usage, it is estimated from `prompt` and the answer.
    pub fn conclude(&mut self, prompt: &str) -> Vec<Event> {
        let mut events = Vec::new();
        if !self.ended() {
            self.flush(&mut events);
        }
        let last = match self.failure.take().or_else(|| self.incomplete()) {
            Some(failure) => Event::Failed(failure),
            None => Event::Finished(self.answer(prompt)),
        };
        events.push(last);
        events
    }

    fn take(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        match &mut self.format {
            BodyFormat::Unknown => {}
            BodyFormat::Whole(body) => {
                body.extend_from_slice(bytes);
                if body.len() > MAX_ANSWER_BYTES {
                    self.refuse("the upstream's answer is larger than 64 MiB");
                }
            }
            BodyFormat::Stream(decoder) => {
                let frames = decoder.push(bytes);
                if decoder.pending() > MAX_FRAME_BYTES || frames.iter().any(|frame| frame.len() > MAX_FRAME_BYTES) {
                    self.refuse("one frame of the upstream's answer is larger than 16 MiB");
                    return;
                }
                for frame in frames {
                    self.frame(&frame, events);
                }
            }
        }
    }

    fn frame(&mut self, frame: &str, events: &mut Vec<Event>) {
        if self.ended() || frame.trim().is_empty() {
            return;
        }
        self.recognized = true;
        if frame.trim() == "[DONE]" {
            self.done = true;
            return;
        }
        match UpstreamChunk::parse(frame) {
            Some(chunk) => self.chunk(frame, chunk, events),
            None => events.push(Event::Unknown { line: frame.chars().take(MAX_EXCERPT).collect() }),
        }
    }

    /// Processes the rest when the body ends: a last frame without its empty line, or the complete object.
    fn flush(&mut self, events: &mut Vec<Event>) {
        match std::mem::replace(&mut self.format, BodyFormat::Unknown) {
            BodyFormat::Unknown => {}
            BodyFormat::Stream(mut decoder) => {
                for frame in decoder.push(b"\n\n") {
                    // A truncated frame is ignored: `incomplete` reports the missing end.
                    if frame.trim() == "[DONE]" || UpstreamChunk::parse(&frame).is_some() {
                        self.frame(&frame, events);
                    }
                }
            }
            BodyFormat::Whole(body) => self.whole(&String::from_utf8_lossy(&body), events),
        }
    }

    fn whole(&mut self, body: &str, events: &mut Vec<Event>) {
        for object in serde_json::Deserializer::from_str(body).into_iter::<&RawValue>() {
            let json = match object {
                Ok(object) => object.get(),
                Err(error) if error.is_eof() => return self.fail(ended_early()),
                Err(_) => return,
            };
            let Some(chunk) = UpstreamChunk::parse(json) else { return };
            self.chunk(json, chunk, events);
        }
        // The object is complete, and so is the answer, with or without a `finish_reason`.
        self.done = self.answered || self.recognized;
    }

    fn chunk(&mut self, json: &str, mut chunk: UpstreamChunk<'_>, events: &mut Vec<Event>) {
        let object = chunk.object.0.as_deref().unwrap_or_default();
        self.recognized |= object.starts_with("chat.completion");
        let error = chunk.error.map(RawValue::get).filter(|error| !matches!(*error, "false" | "\"\""));
        let error = error.or_else(|| (object == "error").then_some(json));
        if let Some(error) = error {
            return self.fail(in_band(error, &self.rules));
        }
        if let Some(model) = chunk.model.0.take().filter(|model| !model.is_empty())
            && self.model.as_ref() != Some(&model)
        {
            events.push(Event::Started { session: None, model: Some(model.clone()) });
            self.model = Some(model);
        }
        self.usage = chunk.usage().or(self.usage);
        if let Some(choice) = chunk.choice() {
            self.choice(choice, events);
        }
    }

    fn choice(&mut self, mut choice: UpstreamChoice<'_>, events: &mut Vec<Event>) {
        self.answered = true;
        let whole = choice.is_whole();
        let mut message = choice.take_message();
        let (thought, answer) = message.take_texts();
        if !thought.is_empty() {
            events.push(Event::Thinking { delta: thought });
        }
        if !answer.is_empty() {
            self.content.push_str(&answer);
            events.push(Event::Text { delta: answer });
        }
        for piece in message.pieces() {
            match self.calls.add(piece, whole) {
                Ok(event) => events.extend(event),
                Err(_too_many) => return self.refuse("the upstream's answer has more than 1024 tool calls"),
            }
        }
        if let Some(logprobs) = choice.logprobs {
            self.logprobs.add(logprobs);
        }
        if self.content.len() + self.calls.size + self.logprobs.size() > MAX_ANSWER_BYTES {
            return self.refuse("the upstream's answer is larger than 64 MiB");
        }
        if let Some(error) = choice.error {
            return self.fail(in_band(error.get(), &self.rules));
        }
        match choice.finish_reason.0.as_deref() {
            None | Some("") => {}
            Some("error") => {
                self.fail(Failure::new(Category::Server, "the upstream ended its answer with an error"));
            }
            Some(reason) => self.finish = Some(finish(reason)),
        }
    }

    /// Returns the failure of an answer that is incomplete at the end of the body.
    fn incomplete(&self) -> Option<Failure> {
        if self.finish.is_some() || (self.done && self.answered) {
            return None;
        }
        if self.done {
            return Some(Failure::new(Category::Server, "the upstream's answer is empty: it has no choices"));
        }
        let head = String::from_utf8_lossy(&self.head);
        let stream_fields = ["data:", "event:", "id:", "retry:", ":"];
        if self.recognized || stream_fields.iter().any(|field| head.starts_with(field) || field.starts_with(&*head)) {
            return Some(ended_early());
        }
        let head = summarize(&head).map(|head| format!(": {head}")).unwrap_or_default();
        let message = format!("the upstream's answer is not a chat completion{head}");
        Some(Failure::new(Category::Configuration, message).hint("check base_url: it usually ends in /v1"))
    }

    fn answer(&mut self, prompt: &str) -> Answer {
        let finish = match self.finish.unwrap_or(Finish::Stop) {
            // Some servers send `stop` although there are tool calls.
            Finish::Stop if !self.calls.is_empty() => Finish::ToolCalls,
            // And some announce tool calls that never come.
            Finish::ToolCalls if self.calls.is_empty() => Finish::Stop,
            finish @ (Finish::Stop | Finish::Length | Finish::ContentFilter | Finish::ToolCalls) => finish,
        };
        let (content, calls) = (std::mem::take(&mut self.content), self.calls.take());
        let usage = self.usage.unwrap_or_else(|| {
            let call_texts = calls.iter().flat_map(|call| [call.name.as_str(), call.arguments.as_str()]);
            let output: String = [content.as_str()].into_iter().chain(call_texts).collect();
            Usage::estimate(prompt, &output)
        });
        Answer { calls, logprobs: self.logprobs.take(), ..Answer::new(content, usage, finish) }
    }

    fn refuse(&mut self, message: &str) {
        self.fail(Failure::new(Category::Server, message));
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }
}

fn ended_early() -> Failure {
    Failure::new(Category::Network, "the upstream's answer ended too early")
}

fn finish(reason: &str) -> Finish {
    match reason {
        "length" | "max_tokens" => Finish::Length,
        "content_filter" => Finish::ContentFilter,
        "tool_calls" | "function_call" | "tool_use" => Finish::ToolCalls,
        _ => Finish::Stop,
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
