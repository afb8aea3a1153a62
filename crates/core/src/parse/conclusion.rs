//! Input of a decoder besides the bytes, and its result.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::event::{Answer, Event, Finish, SessionId, ToolCall, Usage};
use crate::failure::{Failure, FailureRule};
use crate::vocabulary::{Normalize, OutputForm};

/// Settings of a decoder.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Name of the program, for messages.
    pub program: String,
    pub rules: Arc<[FailureRule]>,
    pub noise: Arc<[String]>,
    pub normalize: Normalize,
    /// Form of the output. In the whole form, the exit status decides whether the turn succeeded.
    pub form: OutputForm,
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending<'a> {
    Code(i32),
    Signal(i32),
    /// Stopped because it exceeded a time limit, with a description of the limit.
    TimedOut(&'a str),
    /// Stopped because the client cancelled the turn.
    Cancelled,
    /// Not awaited, because the terminal event was read.
    Open,
}

/// Result of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// Events that are known only at the end of the output.
    pub events: Vec<Event>,
    /// The final message; after a failure, the part that was read.
    pub content: String,
    pub usage: Usage,
    pub finish: Finish,
    pub session: Option<SessionId>,
    pub failure: Option<Failure>,
    /// Calls that the client has to make.
    pub calls: Vec<ToolCall>,
    /// Values that the provider reports about its answer.
    pub metadata: Map<String, Value>,
}

impl Conclusion {
    /// Returns the answer or the failure.
    pub fn result(self) -> Result<Answer, Failure> {
        let Self { content, usage, finish, calls, metadata, failure, .. } = self;
        match failure {
            Some(failure) => Err(failure),
            None => Ok(Answer { calls, metadata, ..Answer::new(content, usage, finish) }),
        }
    }
}
