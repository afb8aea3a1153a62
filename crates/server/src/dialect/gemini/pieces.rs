//! The parts of an answer, from the events of a run. A call of a function is one part, so its pieces are put together first.

use serde_json::{Value, json};
use trunkline_core::event::{Answer, Event};
use trunkline_wire::narration::{Narration, Piece};

use crate::dialect::reasoning::Reasoning;

/// A part of an answer.
#[derive(Debug)]
pub(super) enum OutputPart<'a> {
    Text(&'a str),
    Thought(&'a str),
    Call(&'a PendingCall),
}

/// A call whose pieces are still coming.
#[derive(Debug)]
pub(super) struct PendingCall {
    number: u32,
    id: Option<String>,
    name: String,
    arguments: String,
}

/// Turns the events of one run into parts.
#[derive(Debug)]
pub(super) struct PartReader {
    narration: Narration,
    reasoning: Reasoning,
    pending: Option<PendingCall>,
    has_answer: bool,
    has_calls: bool,
}

impl PartReader {
    pub(super) fn new(reasoning: Reasoning) -> Self {
        Self { narration: Narration::default(), reasoning, pending: None, has_answer: false, has_calls: false }
    }

    /// Passes the parts of an event to `write`. Must see every event of the run, in order.
    pub(super) fn hear(&mut self, event: &Event, write: &mut impl FnMut(OutputPart<'_>)) {
        match self.narration.hear(event) {
            Some(Piece::Text(delta)) => {
                self.end_call(write);
                self.has_answer = true;
                write(OutputPart::Text(delta));
            }
            Some(Piece::Reasoning(delta)) => {
                self.end_call(write);
                if self.reasoning == Reasoning::Shown {
                    write(OutputPart::Thought(&delta));
                }
            }
            Some(Piece::Call { index, id, name, arguments }) => {
                self.has_calls = true;
                match &mut self.pending {
                    Some(pending) if pending.number == index => pending.arguments.push_str(arguments),
                    Some(_) | None => {
                        self.end_call(write);
                        self.pending = Some(PendingCall::new(index, id, name, arguments));
                    }
                }
            }
            None => {}
        }
    }

    /// Passes everything that no event has brought to `write`.
    pub(super) fn complete(&mut self, answer: &Answer, write: &mut impl FnMut(OutputPart<'_>)) {
        self.end_call(write);
        if let Some(late) = self.narration.missing(answer) {
            self.has_answer = true;
            write(OutputPart::Text(&late));
        }
        if !self.has_calls {
            for (number, call) in (0..).zip(&answer.calls) {
                self.has_calls = true;
                let call = PendingCall::new(number, Some(&call.id), Some(&call.name), &call.arguments);
                write(OutputPart::Call(&call));
            }
        }
    }

    /// Whether there is a text or a call.
    pub(super) fn has_answer(&self) -> bool {
        self.has_answer || self.has_calls
    }

    fn end_call(&mut self, write: &mut impl FnMut(OutputPart<'_>)) {
        if let Some(call) = self.pending.take() {
            write(OutputPart::Call(&call));
        }
    }
}

impl PendingCall {
    fn new(number: u32, id: Option<&str>, name: Option<&str>, arguments: &str) -> Self {
        Self {
            number,
            id: id.filter(|id| !id.is_empty()).map(str::to_owned),
            name: name.unwrap_or_default().to_owned(),
            arguments: arguments.to_owned(),
        }
    }

    /// The part. Arguments are an object in this dialect. A model may have written something else.
    pub(super) fn part(&self) -> Value {
        let args = match serde_json::from_str(&self.arguments) {
            Ok(args @ Value::Object(_)) => args,
            Ok(_) | Err(_) if self.arguments.trim().is_empty() => json!({}),
            Ok(_) | Err(_) => json!({"arguments": self.arguments}),
        };
        let mut call = json!({"name": self.name, "args": args});
        if let Some(id) = &self.id {
            call["id"] = id.as_str().into();
        }
        json!({"functionCall": call})
    }
}
