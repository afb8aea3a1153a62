//! Interface of the backends that answer prompts. The bridge knows no CLI, no model and no process.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;
use trunkline_core::turn::{Image, Role};

/// One prompt with its context.
#[derive(Debug, Clone, Default)]
pub struct BackendRequest<'a> {
    pub prompt: &'a str,
    pub system_prompt: &'a str,
    /// Session to continue.
    pub session: Option<&'a SessionId>,
    /// Earlier messages, for a backend without sessions.
    pub history: &'a [HistoryMessage],
    pub images: Vec<Image>,
}

/// An earlier message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryMessage {
    pub role: Role,
    pub text: String,
}

/// Result of a prompt, from any backend.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventResult {
    /// The answer, or the text of an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_text: Option<String>,
    /// Session by which the conversation can be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    pub is_error: bool,
}

impl EventResult {
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self { response_text: Some(text.into()), session_id: None, is_error: true }
    }
}

/// Progress of an answer before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partial<'a> {
    /// More of the text.
    Text(&'a str),
    /// A tool has started. Earlier text is not part of the answer.
    ToolStarted(&'a str),
    /// The tool has ended.
    ToolFinished,
}

/// Callback for the progress of an answer.
pub type Partials<'a> = &'a mut (dyn FnMut(Partial<'_>) + Send);

/// Reason why a backend cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidBackend {
    pub name: String,
    /// Path of its executable.
    pub path: String,
    pub why: String,
}

impl fmt::Display for InvalidBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backend {} at {}: {}", self.name, self.path, self.why)
    }
}

impl std::error::Error for InvalidBackend {}

/// A backend that answers prompts.
pub trait ChatBackend: Send + Sync {
    fn name(&self) -> &str;

    /// Checks that the backend exists and can be started.
    fn validate(&self) -> Result<(), InvalidBackend>;

    /// Whether it accepts pictures. Otherwise the prompt contains their paths.
    fn takes_images(&self) -> bool {
        false
    }

    /// Answers one prompt. Never fails: an error is a result. Dropping the future stops the work.
    fn execute<'a>(&'a self, request: BackendRequest<'a>, partials: Option<Partials<'a>>)
    -> BoxFuture<'a, EventResult>;
}

/// ChatBackends that a channel can choose from. The first is the default.
#[derive(Clone)]
pub struct ChatBackends {
    first: Arc<dyn ChatBackend>,
    others: Vec<Arc<dyn ChatBackend>>,
}

impl ChatBackends {
    #[must_use]
    pub fn new(first: Arc<dyn ChatBackend>) -> Self {
        Self { first, others: Vec::new() }
    }

    /// Adds backends. One whose name is taken is ignored.
    #[must_use]
    pub fn with(mut self, others: impl IntoIterator<Item = Arc<dyn ChatBackend>>) -> Self {
        for other in others {
            if !self.names().contains(&other.name()) {
                self.others.push(other);
            }
        }
        self
    }

    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        std::iter::once(&self.first).chain(&self.others).map(|backend| backend.name()).collect()
    }

    pub(crate) fn first(&self) -> &Arc<dyn ChatBackend> {
        &self.first
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<dyn ChatBackend>> {
        std::iter::once(&self.first).chain(&self.others).find(|backend| backend.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn result_has_camel_case_fields_in_json() {
        let whole =
            EventResult { response_text: Some("hi".into()), session_id: Some(SessionId("s".into())), is_error: false };
        let json = json!({"responseText": "hi", "sessionId": "s", "isError": false});
        assert_eq!(serde_json::to_value(&whole).unwrap(), json);
        assert_eq!(serde_json::from_value::<EventResult>(json).unwrap(), whole);
        assert_eq!(serde_json::to_value(EventResult::default()).unwrap(), json!({"isError": false}));
    }
}
