//! Visible transcript of a conversation, for a page that is loaded again.
//!
//! The size is bounded. Long outputs of old tools are shortened first, then old thinking, then the oldest turns are removed.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trunkline_core::event::{Receipt, Usage};
use trunkline_wire::page::{PageEvent, cut};

/// Maximum size of a transcript, in bytes of text.
const MAX_TRANSCRIPT_BYTES: usize = 2 * 1024 * 1024;

/// Size to which inputs and outputs of old tools are shortened.
const SHORTENED_BYTES: usize = 1024;

/// Maximum size of a tool's input.
const MAX_INPUT_BYTES: usize = 64 * 1024;

/// One row of the page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Item {
    User {
        text: String,
        model: String,
    },
    Text {
        content: String,
    },
    Thinking {
        content: String,
    },
    Tool {
        id: String,
        name: String,
        input: Value,
        /// `None` while the tool runs, and forever if the answer was interrupted.
        output: Option<String>,
        ok: Option<bool>,
    },
    Notice {
        message: String,
    },
    Workspace(Receipt),
    Error {
        message: String,
        code: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    Interrupted,
    Done {
        model: Option<String>,
        usage: Option<Usage>,
    },
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ChatTranscript {
    items: Vec<Item>,
}

impl ChatTranscript {
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    pub(crate) fn ask(&mut self, text: &str, model: &str) {
        self.items.push(Item::User { text: text.to_owned(), model: model.to_owned() });
        self.bound(MAX_TRANSCRIPT_BYTES);
    }

    /// Removes the last message, which will not be answered.
    pub(crate) fn withdraw(&mut self) {
        if let Some(asked) = self.items.iter().rposition(Item::is_asked) {
            self.items.truncate(asked);
        }
    }

    /// Adds an event of the page.
    pub(crate) fn add(&mut self, word: &PageEvent) {
        match (word, self.items.last_mut()) {
            (PageEvent::Text(more), Some(Item::Text { content }))
            | (PageEvent::Thinking(more), Some(Item::Thinking { content })) => content.push_str(more),
            (PageEvent::Text(content), _) => self.items.push(Item::Text { content: content.clone() }),
            (PageEvent::Thinking(content), _) => self.items.push(Item::Thinking { content: content.clone() }),
            (PageEvent::Tool { id, name, input }, _) => {
                let (id, name, input) = (id.clone(), name.clone(), shortened(input, MAX_INPUT_BYTES));
                self.items.push(Item::Tool { id, name, input, output: None, ok: None });
            }
            (PageEvent::ToolResult { id, output, ok, .. }, _) => self.end_tool(id, output, *ok),
            (PageEvent::Notice(message), _) => self.items.push(Item::Notice { message: message.clone() }),
            (PageEvent::Workspace(receipt), _) => self.items.push(Item::Workspace(receipt.clone())),
            (PageEvent::Error(trouble), _) => {
                let (message, code, hint) = (trouble.message.clone(), trouble.code.clone(), trouble.hint.clone());
                self.items.push(Item::Error { message, code, hint });
            }
            (PageEvent::Done(done), _) if done.interrupted => self.interrupt(),
            (PageEvent::Done(done), _) if done.usage.is_some() => {
                self.items.push(Item::Done { model: done.model.clone(), usage: done.usage });
            }
            // The error before it is enough.
            (PageEvent::Done(_), _) => {}
        }
        if matches!(word, PageEvent::ToolResult { .. } | PageEvent::Done(_)) {
            self.bound(MAX_TRANSCRIPT_BYTES);
        }
    }

    pub(crate) fn interrupt(&mut self) {
        self.items.push(Item::Interrupted);
    }

    /// Whether the last answer has ended.
    pub(crate) fn is_settled(&self) -> bool {
        match self.items.last() {
            None | Some(Item::Error { .. } | Item::Interrupted | Item::Done { .. }) => true,
            Some(
                Item::User { .. }
                | Item::Text { .. }
                | Item::Thinking { .. }
                | Item::Tool { .. }
                | Item::Notice { .. }
                | Item::Workspace(_),
            ) => false,
        }
    }

    /// Ends the last running tool with this id: ids come from CLIs and may repeat.
    fn end_tool(&mut self, ended: &str, result: &str, success: bool) {
        for item in self.items.iter_mut().rev() {
            if let Item::Tool { id, output: output @ None, ok, .. } = item
                && id == ended
            {
                (*output, *ok) = (Some(result.to_owned()), Some(success));
                return;
            }
        }
    }

    fn bound(&mut self, limit: usize) {
        let mut size: usize = self.items.iter().map(Item::size).sum();
        for shorten in [Item::shorten_output as fn(&mut Item), Item::shorten_rest] {
            for item in &mut self.items {
                if size <= limit {
                    return;
                }
                let before = item.size();
                shorten(item);
                size -= before - item.size();
            }
        }
        while size > limit {
            // The last message and its answer always stay.
            let Some(next) = self.items.iter().skip(1).position(Item::is_asked) else { return };
            size -= self.items.drain(..=next).map(|item| item.size()).sum::<usize>();
        }
    }
}

impl Item {
    const fn is_asked(&self) -> bool {
        matches!(self, Self::User { .. })
    }

    fn size(&self) -> usize {
        match self {
            Self::User { text, .. } => text.len(),
            Self::Text { content } | Self::Thinking { content } => content.len(),
            Self::Tool { input, output, .. } => weight(input) + output.as_ref().map_or(0, String::len),
            Self::Notice { message } | Self::Error { message, .. } => message.len(),
            Self::Workspace(_) | Self::Interrupted | Self::Done { .. } => 0,
        }
    }

    fn shorten_output(&mut self) {
        if let Self::Tool { output: Some(output), .. } = self {
            *output = cut(output, SHORTENED_BYTES);
        }
    }

    fn shorten_rest(&mut self) {
        match self {
            Self::Tool { input, .. } => *input = shortened(input, SHORTENED_BYTES),
            Self::Thinking { content } => *content = cut(content, SHORTENED_BYTES),
            Self::User { .. }
            | Self::Text { .. }
            | Self::Notice { .. }
            | Self::Workspace(_)
            | Self::Error { .. }
            | Self::Interrupted
            | Self::Done { .. } => {}
        }
    }
}

fn weight(input: &Value) -> usize {
    match input {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(weight).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + weight(value)).sum(),
    }
}

/// Shortens the long strings of a tool's input. An input that is still too large, because it has many strings, becomes one
/// shortened string.
fn shortened(input: &Value, limit: usize) -> Value {
    if weight(input) <= limit {
        return input.clone();
    }
    let short = match input {
        Value::String(text) => Value::String(cut(text, limit)),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), shortened(value, limit / 2))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => input.clone(),
    };
    if weight(&short) <= limit { short } else { Value::String(cut(&input.to_string(), limit)) }
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
