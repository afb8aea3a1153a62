//! Server-sent events of the chat page: a few kinds of frames, each with a name and a small JSON object.
//!
//! A simple client only needs `text`, `tool` and `done` and can skip frames with other names. The last frame is always
//! `done`, also after an error.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use trunkline_core::event::{Event, Receipt, Usage};
use trunkline_core::failure::Category;
use trunkline_core::secret::Secrets;

use crate::delivered::DeliveredText;
use crate::error::ApiError;
use crate::response::Trace;
use crate::sse;

/// Maximum size of a tool's output on the page, in bytes.
pub const MAX_OUTPUT: usize = 64 * 1024;

/// Marks the end of truncated text.
pub const CUT: &str = "\n… (cut)";

/// One frame of the chat page.
#[derive(Debug, Clone, PartialEq)]
pub enum PageEvent {
    Text(String),
    Thinking(String),
    Tool {
        id: String,
        name: String,
        input: Value,
    },
    /// Separate from `tool`, so that a client that counts `tool` frames counts each tool once.
    ToolResult {
        id: String,
        name: String,
        output: String,
        ok: bool,
    },
    Notice(String),
    Workspace(Receipt),
    Error(PageError),
    Done(PageDone),
}

/// Human-readable reason why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PageError {
    pub message: String,
    pub code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Payload of the last frame. Empty after an error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PageDone {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The user cancelled the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

impl PageEvent {
    /// Appends the encoded frame to `out`.
    pub fn frame(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(content) => frame(out, "text", &TextPayload { content }),
            Self::Thinking(content) => frame(out, "thinking", &TextPayload { content }),
            Self::Tool { id, name, input } => frame(out, "tool", &ToolPayload { name, input, args: input, id }),
            Self::ToolResult { id, name, output, ok } => {
                frame(out, "tool_result", &ToolResultPayload { id, name, output, ok: *ok });
            }
            Self::Notice(message) => frame(out, "notice", &NoticePayload { message }),
            Self::Workspace(receipt) => frame(out, "workspace", receipt),
            Self::Error(trouble) => frame(out, "error", trouble),
            Self::Done(done) => frame(out, "done", done),
        }
    }
}

impl PageError {
    /// Prefers the CLI's own message (`detail`) to the gateway's.
    #[must_use]
    pub fn of(error: &ApiError) -> Self {
        Self {
            message: error.detail.as_deref().unwrap_or(&error.message).to_owned(),
            code: error.code.to_owned(),
            hint: error.hint.as_deref().map(str::to_owned),
        }
    }
}

/// Turns the events of one answer into frames.
#[derive(Debug)]
pub struct PageEvents {
    pub trace: Trace,
    model: String,
    secrets: Arc<Secrets>,
    /// Names of the running tools by id: [`Event::ToolFinished`] has no name.
    running: HashMap<String, String>,
    delivered: DeliveredText,
}

impl PageEvents {
    #[must_use]
    pub fn new(model: String, secrets: Arc<Secrets>) -> Self {
        Self { trace: Trace::default(), model, secrets, running: HashMap::new(), delivered: DeliveredText::default() }
    }

    /// Returns the frames for an event, possibly none. The last frame of the last event is [`PageEvent::Done`].
    pub fn of(&mut self, event: &Event) -> Vec<PageEvent> {
        self.trace.observe(event);
        self.delivered.observe(event);
        match event {
            Event::Text { delta } if delta.is_empty() => Vec::new(),
            Event::Text { delta } => vec![PageEvent::Text(delta.clone())],
            Event::Thinking { delta } => vec![PageEvent::Thinking(delta.clone())],
            Event::ToolStarted { id, name, input } => {
                self.running.insert(id.clone(), name.clone());
                vec![PageEvent::Tool { id: id.clone(), name: name.clone(), input: input.clone() }]
            }
            Event::ToolFinished { id, output, ok } => {
                let name = self.running.remove(id).unwrap_or_default();
                vec![PageEvent::ToolResult { id: id.clone(), name, output: cut(output, MAX_OUTPUT), ok: *ok }]
            }
            Event::Notice { message } => vec![PageEvent::Notice(message.clone())],
            // A worktree without changes is not worth showing.
            Event::Workspace(receipt) if receipt.branch.is_some() || receipt.path.is_some() => {
                vec![PageEvent::Workspace(receipt.clone())]
            }
            Event::Started { .. }
            | Event::ToolCall { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_) => Vec::new(),
            Event::Finished(answer) => {
                let late = self.delivered.missing(answer).map(PageEvent::Text);
                late.into_iter().chain([self.done(answer.usage)]).collect()
            }
            Event::Failed(failure) if failure.category == Category::Cancelled => {
                vec![PageEvent::Done(PageDone { interrupted: true, ..PageDone::default() })]
            }
            Event::Failed(failure) => self.failed(&ApiError::failed(failure, &self.secrets)),
        }
    }

    /// Returns the last frames of an answer that failed.
    #[must_use]
    pub fn failed(&self, error: &ApiError) -> Vec<PageEvent> {
        vec![PageEvent::Error(PageError::of(error)), PageEvent::Done(PageDone::default())]
    }

    fn done(&self, usage: Usage) -> PageEvent {
        PageEvent::Done(PageDone {
            model: Some(self.model.clone()),
            usage: Some(usage),
            session: self.trace.session.as_ref().map(ToString::to_string),
            interrupted: false,
        })
    }
}

/// Truncates a text to `limit` bytes at a character boundary and marks the cut with [`CUT`].
#[must_use]
pub fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub(CUT.len()));
    format!("{}{CUT}", &text[..end])
}

#[derive(Serialize)]
struct TextPayload<'a> {
    content: &'a str,
}

/// Has the input under both names that clients read.
#[derive(Serialize)]
struct ToolPayload<'a> {
    name: &'a str,
    input: &'a Value,
    args: &'a Value,
    id: &'a str,
}

#[derive(Serialize)]
struct ToolResultPayload<'a> {
    id: &'a str,
    name: &'a str,
    output: &'a str,
    ok: bool,
}

#[derive(Serialize)]
struct NoticePayload<'a> {
    message: &'a str,
}

fn frame<T: Serialize>(out: &mut Vec<u8>, name: &str, payload: &T) {
    let payload = serde_json::to_string(payload).expect("our own types have string keys and finite numbers");
    sse::event(out, name, &payload);
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
