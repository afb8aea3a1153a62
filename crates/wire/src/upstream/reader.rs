//! Decoder for the body of an upstream's answer: bytes in, however they are split, events out. It never fails: a frame
//! that cannot be parsed becomes [`Event::Unknown`], and an incomplete answer ends with [`Event::Failed`].
//!
//! The first character tells whether the body is a stream or one object; the request does not, because some servers
//! ignore `stream` and some proxies buffer.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use trunkline_core::event::{Alternative, Answer, Event, ToolCall, Usage};
use trunkline_core::failure::{Category, Failure, FailureRule};

use super::choice::{ChoiceAssembler, ChoiceError};
use super::chunk::{UpstreamChoice, UpstreamChunk};
use super::failure::{in_band, summarize};
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
    /// The choice whose pieces become events.
    first: ChoiceAssembler,
    /// The other choices that have begun, by their index.
    others: BTreeMap<usize, ChoiceAssembler>,
    /// Number of choices that the request asked for. More than these are ignored.
    wanted: usize,
    usage: Option<Usage>,
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
            first: ChoiceAssembler::default(),
            others: BTreeMap::new(),
            wanted: 1,
            usage: None,
            answered: false,
            recognized: false,
            done: false,
            failure: None,
        }
    }

    /// Expects this number of choices. All but the first are alternatives of the answer.
    #[must_use]
    pub fn choices_wanted(self, wanted: u32) -> Self {
        Self { wanted: usize::try_from(wanted).unwrap_or(usize::MAX), ..self }
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
        self.others.len() + 1 >= self.wanted && self.choices().all(ChoiceAssembler::is_finished)
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
        for (index, choice) in chunk.take_choices() {
            self.choice(index, choice, events);
        }
    }

    fn choice(&mut self, index: u64, choice: UpstreamChoice<'_>, events: &mut Vec<Event>) {
        let added = match usize::try_from(index) {
            Ok(0) => {
                self.answered = true;
                self.first.add(choice, events)
            }
            // The events of a run are one answer, so the other choices are given at the end.
            Ok(index) if index < self.wanted => self.others.entry(index).or_default().add(choice, &mut Vec::new()),
            Ok(_) | Err(_) => return,
        };
        match added {
            Err(ChoiceError::TooManyCalls) => self.refuse("the upstream's answer has more than 1024 tool calls"),
            Err(ChoiceError::Reported(Some(error))) => self.fail(in_band(&error, &self.rules)),
            Err(ChoiceError::Reported(None)) => self.refuse("the upstream ended its answer with an error"),
            Ok(()) if self.choices().map(ChoiceAssembler::size).sum::<usize>() > MAX_ANSWER_BYTES => {
                self.refuse("the upstream's answer is larger than 64 MiB");
            }
            Ok(()) => {}
        }
    }

    /// The choices that have begun.
    fn choices(&self) -> impl Iterator<Item = &ChoiceAssembler> {
        std::iter::once(&self.first).chain(self.others.values())
    }

    /// Returns the failure of an answer that is incomplete at the end of the body.
    fn incomplete(&self) -> Option<Failure> {
        if self.choices().all(ChoiceAssembler::is_finished) || (self.done && self.answered) {
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
        let Alternative { content, finish, calls, logprobs } = self.first.take();
        let alternatives: Vec<Alternative> = self.others.values_mut().map(ChoiceAssembler::take).collect();
        let usage = self.usage.unwrap_or_else(|| {
            let others = alternatives.iter().map(|other| (&other.content, &other.calls));
            let output: String = std::iter::once((&content, &calls)).chain(others).flat_map(texts).collect();
            Usage::estimate(prompt, &output)
        });
        Answer { calls, logprobs, alternatives, ..Answer::new(content, usage, finish) }
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

/// The texts of a choice that count as output.
fn texts<'a>((content, calls): (&'a String, &'a Vec<ToolCall>)) -> impl Iterator<Item = &'a str> {
    let calls = calls.iter().flat_map(|call| [call.name.as_str(), call.arguments.as_str()]);
    std::iter::once(content.as_str()).chain(calls)
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
