//! Reads the body of an upstream's answer: bytes in, however they are cut, events out. It never fails; what cannot be
//! read becomes [`Event::Unknown`], and what the answer lacks becomes the failure at its end.
//!
//! Whether the body is a stream or one object is seen from its first character: servers ignore `stream`, and proxies
//! buffer.

use serde_json::value::RawValue;
use trunkline_core::event::{Answer, Event, Finish, Usage};
use trunkline_core::failure::{Category, Failure, Rule};

use super::calls::Calls;
use super::chunk::{Choice, Chunk};
use super::failure::{in_band, prose};
use crate::sse;

/// The most a single frame may hold: one step of an answer is never larger.
const MAX_FRAME: usize = 16 * 1024 * 1024;

/// The most of an answer that is kept.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// How much of an unreadable frame or body is shown.
const MAX_SHOWN: usize = 2000;

/// Reads one answer.
#[derive(Debug)]
pub struct Reader {
    rules: Vec<Rule>,
    shape: Shape,
    /// The beginning of the body, to tell what it was if it was no answer.
    head: Vec<u8>,
    model: Option<String>,
    content: String,
    calls: Calls,
    usage: Option<Usage>,
    finish: Option<Finish>,
    /// A choice was seen: there is an answer, if maybe an empty one.
    answered: bool,
    /// A frame or a completion was seen: the upstream speaks the language.
    spoke: bool,
    done: bool,
    failure: Option<Failure>,
}

#[derive(Debug)]
enum Shape {
    Unknown,
    Stream(sse::Decoder),
    Whole(Vec<u8>),
}

impl Reader {
    /// A reader whose failures are classified by the upstream's own `rules` first.
    #[must_use]
    pub fn new(rules: &[Rule]) -> Self {
        Self {
            rules: rules.to_vec(),
            shape: Shape::Unknown,
            head: Vec::new(),
            model: None,
            content: String::new(),
            calls: Calls::default(),
            usage: None,
            finish: None,
            answered: false,
            spoke: false,
            done: false,
            failure: None,
        }
    }

    /// What these bytes bring.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        if matches!(self.shape, Shape::Unknown) {
            let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xEF\xBB\xBF".contains(byte);
            let Some(start) = bytes.iter().position(|byte| !blank(byte)) else { return events };
            bytes = &bytes[start..];
            self.shape = match bytes[0] {
                b'{' | b'[' => Shape::Whole(Vec::new()),
                _ => Shape::Stream(sse::Decoder::default()),
            };
        }
        let room = MAX_SHOWN.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        // In slices, so that no piece, however large, holds more than one frame too many.
        for slice in bytes.chunks(64 * 1024) {
            if self.ended() {
                break;
            }
            self.take(slice, &mut events);
        }
        events
    }

    /// Whether all has been said, so that the end of the connection need not be waited for.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.done || self.failure.is_some()
    }

    /// Whether the answer itself is complete: only its usage and the end mark may follow.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.finish.is_some()
    }

    /// The last events, once the body has ended; the very last is `Finished` or `Failed`. Where the upstream counted
    /// nothing, the usage is estimated from `prompt` and the answer.
    pub fn conclude(&mut self, prompt: &str) -> Vec<Event> {
        let mut events = Vec::new();
        if !self.ended() {
            self.flush(&mut events);
        }
        let last = match self.failure.take().or_else(|| self.shortcoming()) {
            Some(failure) => Event::Failed(failure),
            None => Event::Finished(self.answer(prompt)),
        };
        events.push(last);
        events
    }

    fn take(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        match &mut self.shape {
            Shape::Unknown => {}
            Shape::Whole(body) => {
                body.extend_from_slice(bytes);
                if body.len() > MAX_ANSWER {
                    self.refuse("the upstream's answer is larger than 64 MiB");
                }
            }
            Shape::Stream(decoder) => {
                let frames = decoder.push(bytes);
                if decoder.pending() > MAX_FRAME || frames.iter().any(|frame| frame.len() > MAX_FRAME) {
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
        self.spoke = true;
        if frame.trim() == "[DONE]" {
            self.done = true;
            return;
        }
        match Chunk::parse(frame) {
            Some(chunk) => self.chunk(frame, chunk, events),
            None => events.push(Event::Unknown { line: frame.chars().take(MAX_SHOWN).collect() }),
        }
    }

    /// What is left when the body ends: a last frame without its empty line, or the one object it was.
    fn flush(&mut self, events: &mut Vec<Event>) {
        match std::mem::replace(&mut self.shape, Shape::Unknown) {
            Shape::Unknown => {}
            Shape::Stream(mut decoder) => {
                for frame in decoder.push(b"\n\n") {
                    // A frame that was cut is no more than a sign that the end is missing.
                    if frame.trim() == "[DONE]" || Chunk::parse(&frame).is_some() {
                        self.frame(&frame, events);
                    }
                }
            }
            Shape::Whole(body) => self.whole(&String::from_utf8_lossy(&body), events),
        }
    }

    fn whole(&mut self, body: &str, events: &mut Vec<Event>) {
        for object in serde_json::Deserializer::from_str(body).into_iter::<&RawValue>() {
            let json = match object {
                Ok(object) => object.get(),
                Err(error) if error.is_eof() => return self.fail(ended_early()),
                Err(_) => return,
            };
            let Some(chunk) = Chunk::parse(json) else { return };
            self.chunk(json, chunk, events);
        }
        // The object is complete, and so is the answer, whether or not it says why it stopped.
        self.done = self.answered || self.spoke;
    }

    fn chunk(&mut self, json: &str, mut chunk: Chunk<'_>, events: &mut Vec<Event>) {
        let object = chunk.object.0.as_deref().unwrap_or_default();
        self.spoke |= object.starts_with("chat.completion");
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

    fn choice(&mut self, mut choice: Choice<'_>, events: &mut Vec<Event>) {
        self.answered = true;
        let whole = choice.is_whole();
        let mut said = choice.said();
        let (thought, answer) = said.words();
        if !thought.is_empty() {
            events.push(Event::Thinking { delta: thought });
        }
        if !answer.is_empty() {
            self.content.push_str(&answer);
            events.push(Event::Text { delta: answer });
        }
        for piece in said.pieces() {
            match self.calls.add(piece, whole) {
                Ok(event) => events.extend(event),
                Err(_too_many) => return self.refuse("the upstream asks for more calls than can be meant"),
            }
        }
        if self.content.len() + self.calls.size > MAX_ANSWER {
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

    /// Why this is no answer, now that no more will come.
    fn shortcoming(&self) -> Option<Failure> {
        if self.finish.is_some() || (self.done && self.answered) {
            return None;
        }
        if self.done {
            return Some(Failure::new(Category::Server, "the upstream's answer is empty: it has no choices"));
        }
        let head = String::from_utf8_lossy(&self.head);
        let streamed = ["data:", "event:", "id:", "retry:", ":"];
        if self.spoke || streamed.iter().any(|field| head.starts_with(field) || field.starts_with(&*head)) {
            return Some(ended_early());
        }
        let head = prose(&head).map(|head| format!(": {head}")).unwrap_or_default();
        let message = format!("the upstream answered with something else than a chat completion{head}");
        Some(Failure::new(Category::Configuration, message).hint("check base_url: it usually ends in /v1"))
    }

    fn answer(&mut self, prompt: &str) -> Answer {
        let finish = match self.finish.unwrap_or(Finish::Stop) {
            // Some stop as usual when it is the client's turn.
            Finish::Stop if !self.calls.is_empty() => Finish::ToolCalls,
            // And some announce calls that never come.
            Finish::ToolCalls if self.calls.is_empty() => Finish::Stop,
            finish @ (Finish::Stop | Finish::Length | Finish::ContentFilter | Finish::ToolCalls) => finish,
        };
        let (content, calls) = (std::mem::take(&mut self.content), self.calls.take());
        let usage = self.usage.unwrap_or_else(|| {
            let asked = calls.iter().flat_map(|call| [call.name.as_str(), call.arguments.as_str()]);
            let output: String = [content.as_str()].into_iter().chain(asked).collect();
            Usage::estimate(prompt, &output)
        });
        Answer { calls, ..Answer::new(content, usage, finish) }
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
