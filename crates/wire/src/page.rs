//! Events become what the chat page is told: few kinds of frames, each with a name and a small JSON object.
//!
//! `text`, `tool` and `done` are all that a simple client needs; whoever does not know the other names skips them. The
//! last frame is always `done`, after an error too.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use trunkline_core::event::{Event, Receipt, Usage};
use trunkline_core::failure::Category;
use trunkline_core::secret::Secrets;

use crate::error::ApiError;
use crate::response::Trace;
use crate::sse;
use crate::told::Told;

/// How much of a tool's output the page is shown, in bytes.
pub const MAX_OUTPUT: usize = 64 * 1024;

/// Stands where something was cut off.
pub const CUT: &str = "\n… (cut)";

/// One thing the page is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    Text(String),
    Thinking(String),
    Tool {
        id: String,
        name: String,
        input: Value,
    },
    /// Not part of `tool`, so that a client that counts those counts each tool once.
    ToolResult {
        id: String,
        name: String,
        output: String,
        ok: bool,
    },
    Notice(String),
    Workspace(Receipt),
    Error(Trouble),
    Done(Done),
}

/// Why there is no answer, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    pub message: String,
    pub code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What is known at the end. Nothing of it after an error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Done {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The user stopped it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

impl Word {
    /// Appends the frame.
    pub fn frame(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(content) => frame(out, "text", &Content { content }),
            Self::Thinking(content) => frame(out, "thinking", &Content { content }),
            Self::Tool { id, name, input } => frame(out, "tool", &Tool { name, input, args: input, id }),
            Self::ToolResult { id, name, output, ok } => {
                frame(out, "tool_result", &ToolResult { id, name, output, ok: *ok });
            }
            Self::Notice(message) => frame(out, "notice", &Notice { message }),
            Self::Workspace(receipt) => frame(out, "workspace", receipt),
            Self::Error(trouble) => frame(out, "error", trouble),
            Self::Done(done) => frame(out, "done", done),
        }
    }
}

impl Trouble {
    /// What the CLI said is what people need; our own words are the next best.
    #[must_use]
    pub fn of(error: &ApiError) -> Self {
        Self {
            message: error.detail.as_deref().unwrap_or(&error.message).to_owned(),
            code: error.code.to_owned(),
            hint: error.hint.as_deref().map(str::to_owned),
        }
    }
}

/// Turns the events of one answer into words.
#[derive(Debug)]
pub struct Words {
    pub trace: Trace,
    model: String,
    secrets: Arc<Secrets>,
    /// The tools that run, by id: the event of their end does not name them.
    running: HashMap<String, String>,
    told: Told,
}

impl Words {
    #[must_use]
    pub fn new(model: String, secrets: Arc<Secrets>) -> Self {
        Self { trace: Trace::default(), model, secrets, running: HashMap::new(), told: Told::default() }
    }

    /// What an event is worth telling; the last word of the last event is [`Word::Done`].
    pub fn of(&mut self, event: &Event) -> Vec<Word> {
        self.trace.observe(event);
        self.told.observe(event);
        match event {
            Event::Text { delta } if delta.is_empty() => Vec::new(),
            Event::Text { delta } => vec![Word::Text(delta.clone())],
            Event::Thinking { delta } => vec![Word::Thinking(delta.clone())],
            Event::ToolStarted { id, name, input } => {
                self.running.insert(id.clone(), name.clone());
                vec![Word::Tool { id: id.clone(), name: name.clone(), input: input.clone() }]
            }
            Event::ToolFinished { id, output, ok } => {
                let name = self.running.remove(id).unwrap_or_default();
                vec![Word::ToolResult { id: id.clone(), name, output: cut(output, MAX_OUTPUT), ok: *ok }]
            }
            Event::Notice { message } => vec![Word::Notice(message.clone())],
            // A worktree in which nothing changed is nobody's concern.
            Event::Workspace(receipt) if receipt.branch.is_some() || receipt.path.is_some() => {
                vec![Word::Workspace(receipt.clone())]
            }
            Event::Started { .. }
            | Event::ToolCall { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_) => Vec::new(),
            Event::Finished(answer) => {
                let late = self.told.missing(answer).map(Word::Text);
                late.into_iter().chain([self.done(answer.usage)]).collect()
            }
            Event::Failed(failure) if failure.category == Category::Cancelled => {
                vec![Word::Done(Done { interrupted: true, ..Done::default() })]
            }
            Event::Failed(failure) => self.failed(&ApiError::failed(failure, &self.secrets)),
        }
    }

    /// The last words of an answer that cannot be.
    #[must_use]
    pub fn failed(&self, error: &ApiError) -> Vec<Word> {
        vec![Word::Error(Trouble::of(error)), Word::Done(Done::default())]
    }

    fn done(&self, usage: Usage) -> Word {
        Word::Done(Done {
            model: Some(self.model.clone()),
            usage: Some(usage),
            session: self.trace.session.as_ref().map(ToString::to_string),
            interrupted: false,
        })
    }
}

/// The beginning of a text, in whole characters, with a mark where the rest was.
#[must_use]
pub fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub(CUT.len()));
    format!("{}{CUT}", &text[..end])
}

#[derive(Serialize)]
struct Content<'a> {
    content: &'a str,
}

/// Tells the input under both names that clients look for.
#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    input: &'a Value,
    args: &'a Value,
    id: &'a str,
}

#[derive(Serialize)]
struct ToolResult<'a> {
    id: &'a str,
    name: &'a str,
    output: &'a str,
    ok: bool,
}

#[derive(Serialize)]
struct Notice<'a> {
    message: &'a str,
}

fn frame<T: Serialize>(out: &mut Vec<u8>, name: &str, payload: &T) {
    let payload = serde_json::to_string(payload).expect("our own types have string keys and finite numbers");
    sse::event(out, name, &payload);
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
