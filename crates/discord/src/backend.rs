//! What answers a channel, behind one interface: the bridge knows no CLI, no model and no process.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;
use trunkline_core::turn::{Image, Role};

/// One prompt, with everything that belongs to it.
#[derive(Debug, Clone, Default)]
pub struct Ask<'a> {
    pub prompt: &'a str,
    pub system_prompt: &'a str,
    /// The conversation to go on with.
    pub session: Option<&'a SessionId>,
    /// What was said before, for a backend that remembers nothing itself.
    pub history: &'a [Said],
    pub images: Vec<Image>,
}

/// Something that was said in a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    pub role: Role,
    pub text: String,
}

/// What became of a prompt, whoever answered it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventResult {
    /// The answer; of an error, what there is to say about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_text: Option<String>,
    /// The conversation can be gone on with under this name.
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

/// What is seen of an answer before it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partial<'a> {
    /// More of the text.
    Text(&'a str),
    /// A tool is at work. What was said before it is not the answer.
    Doing(&'a str),
    /// No longer.
    Done,
}

/// Is told of an answer as it grows.
pub type Partials<'a> = &'a mut (dyn FnMut(Partial<'_>) + Send);

/// Why a backend cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    pub name: String,
    /// Where it was looked for.
    pub path: String,
    pub why: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backend {} at {}: {}", self.name, self.path, self.why)
    }
}

impl std::error::Error for Invalid {}

/// Answers prompts.
pub trait Backend: Send + Sync {
    fn name(&self) -> &str;

    /// Whether it is there and can be started.
    fn validate(&self) -> Result<(), Invalid>;

    /// Whether it can be shown pictures; others are told where they lie.
    fn takes_images(&self) -> bool {
        false
    }

    /// Answers one prompt. Never fails: an error is a result. Dropping the future stops whatever runs for it.
    fn execute<'a>(&'a self, ask: Ask<'a>, partials: Option<Partials<'a>>) -> BoxFuture<'a, EventResult>;
}

/// The backends a channel can choose from; the first is everybody's until they do.
#[derive(Clone)]
pub struct Backends {
    first: Arc<dyn Backend>,
    others: Vec<Arc<dyn Backend>>,
}

impl Backends {
    #[must_use]
    pub fn new(first: Arc<dyn Backend>) -> Self {
        Self { first, others: Vec::new() }
    }

    /// The same, with more to choose from. One of a name that is taken is left out.
    #[must_use]
    pub fn with(mut self, others: impl IntoIterator<Item = Arc<dyn Backend>>) -> Self {
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

    pub(crate) fn first(&self) -> &Arc<dyn Backend> {
        &self.first
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<dyn Backend>> {
        std::iter::once(&self.first).chain(&self.others).find(|backend| backend.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_on_the_wire() {
        let whole =
            EventResult { response_text: Some("hi".into()), session_id: Some(SessionId("s".into())), is_error: false };
        let json = json!({"responseText": "hi", "sessionId": "s", "isError": false});
        assert_eq!(serde_json::to_value(&whole).unwrap(), json);
        assert_eq!(serde_json::from_value::<EventResult>(json).unwrap(), whole);
        assert_eq!(serde_json::to_value(EventResult::default()).unwrap(), json!({"isError": false}));
    }
}
