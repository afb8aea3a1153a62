//! What a decoder is given, and what it gives at the end.

use serde_json::{Map, Value};

use crate::event::{Answer, Event, Finish, SessionId, ToolCall, Usage};
use crate::failure::{Failure, FailureRule};
use crate::vocabulary::{Normalize, OutputForm};

/// What a decoder must know beside the bytes.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Who printed it, for messages.
    pub program: String,
    pub rules: Vec<FailureRule>,
    pub noise: Vec<String>,
    pub normalize: Normalize,
    /// How it was asked to print. Of the whole form, the exit status has the last word.
    pub form: OutputForm,
}

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending<'a> {
    Code(i32),
    Signal(i32),
    /// It was stopped for time: the limit that fired, in words.
    TimedOut(&'a str),
    /// It was stopped because nobody wants the answer any more.
    Cancelled,
    /// It was not waited for: its last event had come.
    Open,
}

/// What a whole output came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// Events that only the end brought out.
    pub events: Vec<Event>,
    /// The final message; after a failure, what there was of it.
    pub content: String,
    pub usage: Usage,
    pub finish: Finish,
    pub session: Option<SessionId>,
    pub failure: Option<Failure>,
    /// Calls that the client is asked to make.
    pub calls: Vec<ToolCall>,
    /// What it said about its answer.
    pub metadata: Map<String, Value>,
}

impl Conclusion {
    /// The answer, or why there is none.
    pub fn result(self) -> Result<Answer, Failure> {
        let Self { content, usage, finish, calls, metadata, failure, .. } = self;
        match failure {
            Some(failure) => Err(failure),
            None => Ok(Answer { calls, metadata, ..Answer::new(content, usage, finish) }),
        }
    }
}
