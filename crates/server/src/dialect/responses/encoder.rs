//! The encoder of a response: events become items, and the items either the frames of a stream or one object.
//!
//! A stream, a whole answer and an answer that is read again later are the work of this one state machine, so they agree.

use std::sync::Arc;

use trunkline_core::event::{Answer, Event};
use trunkline_core::secret::Secrets;
use trunkline_engine::LoggedEvents;
use trunkline_wire::error::ApiError;
use trunkline_wire::narration::{Narration, Piece};
use trunkline_wire::response::Trace;
use trunkline_wire::stream::Stream;

use super::frames::{FrameWriter, Written};
use super::object::{self, Outcome, ResponseError, Status};
use super::output::{ItemStatus, Output};
use super::stored::StoredRequest;
use crate::answer::WholeAnswer;
use crate::answer::streaming::{ErrorReport, Frames, is_visible};
use crate::continuations::Continuation;
use crate::dialect::RunHead;

pub(crate) struct ResponseEncoder {
    pub(super) trace: Trace,
    run: RunHead,
    request: StoredRequest,
    secrets: Arc<Secrets>,
    /// Makes a stream have the events of the log, so that it can be continued from there.
    logged: Option<LoggedEvents>,
    narration: Narration,
    output: Output,
    frames: FrameWriter,
    /// Whether the first frames have been written.
    opened: bool,
    outcome: Option<Outcome>,
    reader: Reader,
    /// Whether a run that fails before the first frame is a stream that fails, rather than an HTTP status.
    failures_as_events: bool,
    _continuation: Option<Continuation>,
}

/// The reader of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// The client of the run. An error before the first frame is an HTTP status.
    First,
    /// A client that reads a stored response. It may be read again.
    Again,
}

impl ResponseEncoder {
    pub(super) fn new(run: &RunHead, request: StoredRequest, secrets: Arc<Secrets>, written: Written) -> Self {
        Self {
            trace: Trace::default(),
            run: run.clone(),
            logged: (request.stored && written != Written::None).then(|| LoggedEvents::new((*secrets).clone())),
            request,
            secrets,
            narration: Narration::default(),
            output: Output::new(&run.id),
            frames: FrameWriter::new(written),
            opened: false,
            outcome: None,
            reader: Reader::First,
            failures_as_events: false,
            _continuation: None,
        }
    }

    /// Keeps the claim on the response before it, as long as the answer is made.
    pub(super) fn holding(self, continuation: Option<Continuation>) -> Self {
        Self { _continuation: continuation, ..self }
    }

    /// For a client that shows the reason of a failure only if it is an event of a stream.
    pub(super) fn failures_as_events(self, failures_as_events: bool) -> Self {
        Self { failures_as_events, ..self }
    }

    /// As the encoder of a stored response, whose events come from the log.
    pub(super) fn read_again(self) -> Self {
        Self { reader: Reader::Again, logged: None, ..self }
    }

    /// Takes an event. Frames are appended to `out`.
    pub(super) fn take(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream {
        self.trace.observe(event);
        match self.logged.take() {
            Some(mut logged) => {
                logged.push(event, &mut |event| self.encode(event, out));
                self.logged = Some(logged);
            }
            None => self.encode(event, out),
        }
        if self.outcome.is_some() { Stream::Ended } else { Stream::Open }
    }

    /// The response as far as it has come.
    pub(super) fn object(&self, status: Status) -> Vec<u8> {
        let outcome = self.outcome.clone().unwrap_or_else(|| Outcome::open(status));
        let mut out = Vec::new();
        object::write(
            &mut out,
            &self.run,
            &self.request.echo,
            &outcome,
            self.output.items().iter().map(String::as_str),
        );
        out
    }

    /// The JSON of the output items.
    pub(super) fn items(&self) -> Vec<String> {
        self.output.items()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        self.begin(out);
        let piece = self.narration.hear(event);
        let Self { output, frames, .. } = self;
        match event {
            Event::ToolStarted { id, name, input } if self.request.tool_items => {
                output.tool_started(id, name, input, frames, out);
            }
            Event::ToolFinished { id, output: result, ok } if self.request.tool_items => {
                output.tool_finished(id, result, *ok, frames, out);
            }
            Event::Finished(answer) => self.finish(answer, out),
            Event::Failed(failure) => {
                let error = ApiError::failed(failure, &self.secrets).of_run(&self.trace);
                self.end_with(&error, out);
            }
            Event::Started { .. }
            | Event::Text { .. }
            | Event::Thinking { .. }
            | Event::ToolStarted { .. }
            | Event::ToolFinished { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_) => match piece {
                Some(Piece::Text(delta)) => output.text(delta, frames, out),
                Some(Piece::Reasoning(delta)) => output.reasoning(&delta, frames, out),
                Some(Piece::Call { index, id, name, arguments }) => {
                    output.call(index, id, name, arguments, frames, out)
                }
                None => {}
            },
        }
    }

    /// Appends the first frames, once.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.opened, true) {
            return;
        }
        if self.request.background {
            self.lifecycle("response.created", &Outcome::open(Status::Queued), out);
            self.lifecycle("response.queued", &Outcome::open(Status::Queued), out);
        } else {
            self.lifecycle("response.created", &Outcome::open(Status::InProgress), out);
        }
        self.lifecycle("response.in_progress", &Outcome::open(Status::InProgress), out);
    }

    fn finish(&mut self, answer: &Answer, out: &mut Vec<u8>) {
        let Self { output, frames, .. } = self;
        if let Some(late) = self.narration.missing(answer) {
            output.text(&late, frames, out);
        }
        if !output.has_calls() {
            output.calls(&answer.calls, frames, out);
        }
        if !output.has_answer() {
            output.text("", frames, out);
        }
        let mut outcome = Outcome::finished(answer.finish, answer.usage);
        let complete = outcome.status == Status::Completed;
        output.end(if complete { ItemStatus::Completed } else { ItemStatus::Incomplete }, frames, out);
        outcome.trunkline = Some(self.trace.extension(Some(answer)));
        let name = if complete { "response.completed" } else { "response.incomplete" };
        self.end(name, outcome, out);
    }

    fn end_with(&mut self, error: &ApiError, out: &mut Vec<u8>) {
        self.output.end(ItemStatus::Incomplete, &mut self.frames, out);
        self.error(error, out);
        let outcome = Outcome { trunkline: error.trace.as_deref().cloned(), ..Outcome::failed(error) };
        self.end("response.failed", outcome, out);
    }

    /// Appends the event by which clients without an eye for `response.failed` notice an error.
    fn error(&mut self, error: &ApiError, out: &mut Vec<u8>) {
        let ResponseError { code, message } = ResponseError::of(error);
        self.frames.frame("error", &serde_json::json!({"code": code, "message": message, "param": error.param}), out);
    }

    fn end(&mut self, name: &str, mut outcome: Outcome, out: &mut Vec<u8>) {
        // Derived from the events, so that it is the same whenever the response is read.
        let took = self.trace.attempts.iter().map(|attempt| attempt.duration).sum::<std::time::Duration>();
        outcome.completed_at = (outcome.status == Status::Completed).then(|| self.run.created + took.as_secs());
        self.lifecycle(name, &outcome, out);
        self.outcome = Some(outcome);
    }

    fn lifecycle(&mut self, name: &str, outcome: &Outcome, out: &mut Vec<u8>) {
        let Self { run, request, output, frames, .. } = self;
        frames.frame_with(name, out, |out| {
            out.extend_from_slice(b",\"response\":");
            object::write(out, run, &request.echo, outcome, output.items().iter().map(String::as_str));
        });
    }
}

impl Frames for ResponseEncoder {
    fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream {
        self.take(event, out)
    }

    fn fail(&mut self, error: &ApiError, out: &mut Vec<u8>) -> Stream {
        self.begin(out);
        match self.reader {
            Reader::First => self.end_with(error, out),
            // The response itself may go on.
            Reader::Again => self.error(error, out),
        }
        Stream::Ended
    }

    fn opens(&self, event: &Event) -> bool {
        self.reader == Reader::Again || is_visible(event)
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
    }

    fn refuse(&mut self, _error: &ApiError) -> ErrorReport {
        match self.reader {
            Reader::First if !self.failures_as_events => ErrorReport::Status,
            Reader::First | Reader::Again => ErrorReport::Frames,
        }
    }
}

impl WholeAnswer for ResponseEncoder {
    fn observe(&mut self, event: &Event) {
        // The last event needs the provider and the session, which are known to `finish`.
        if !event.is_end() {
            self.take(event, &mut Vec::new());
        }
    }

    fn finish(mut self, trace: &Trace, answer: Answer) -> Vec<u8> {
        self.trace = trace.clone();
        self.encode(&Event::Finished(answer), &mut Vec::new());
        self.object(Status::Completed)
    }
}

#[cfg(test)]
#[path = "encoder_tests.rs"]
mod tests;
