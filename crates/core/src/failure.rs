//! Failures of a turn, and what may follow them.
//!
//! A failure is classified once, where the output of a provider is read, by [`classify()`]. No code after that matches on
//! its text.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

pub use category::{Category, FailurePolicy};
pub(crate) use classify::classify_session;
pub use classify::{FailureRule, classify, retry_after};

mod category;
mod classify;

/// Failure of a turn as plain data, for events, logs and JSON bodies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub category: Category,
    /// Message of the CLI, or ours if the CLI gave none.
    pub message: String,
    /// Advice for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    #[serde(rename = "retry_after_ms", default, serialize_with = "as_millis", deserialize_with = "from_millis")]
    pub retry_after: Option<Duration>,
    /// The provider reports that it cannot resume the requested session. Only then is a turn of a session sent to the same
    /// provider again, so this is set by a rule of the recipe and never derived from the category.
    #[serde(skip)]
    pub session_lost: bool,
}

impl Failure {
    #[must_use]
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self { category, message: message.into(), hint: None, retry_after: None, session_lost: false }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// Marks a failure to resume a session.
    #[must_use]
    pub fn session_lost(mut self) -> Self {
        self.session_lost = true;
        self
    }

    /// Creates the failure of a turn that exceeded a time limit.
    #[must_use]
    pub fn timed_out() -> Self {
        Self::new(Category::Timeout, "Query timed out")
    }
}

fn as_millis<S: Serializer>(wait: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
}

fn from_millis<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
}
