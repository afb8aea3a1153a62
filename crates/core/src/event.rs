//! Events of a turn. They are all that travels from providers to surfaces.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::failure::{Category, Failure};

/// Event of a turn: `Started`, any others, then exactly one of `Finished` and `Failed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The CLI reported its session or the model that answers. May come more than once.
    Started {
        session: Option<SessionId>,
        model: Option<String>,
    },
    /// Piece of the answer, to be shown at once.
    Text {
        delta: String,
    },
    /// Piece of the agent's reasoning; never part of the answer.
    Thinking {
        delta: String,
    },
    /// A tool started. The tool limit applies until it ends.
    ToolStarted {
        id: String,
        name: String,
        input: Value,
    },
    ToolFinished {
        id: String,
        output: String,
        ok: bool,
    },
    /// Piece of a call that the client has to make itself: the name first, then the arguments in pieces.
    ToolCall {
        index: u32,
        id: Option<String>,
        name: Option<String>,
        arguments: String,
    },
    /// Message of the CLI about itself, such as a retry or a warning. Not an error of the turn.
    Notice {
        message: String,
    },
    /// Output line that no parser knows. It is kept and shown, never dropped and never an error.
    Unknown {
        line: String,
    },
    /// Result of the run in its own worktree.
    Workspace(Receipt),
    /// An attempt is over: the last one before `Finished` or `Failed`, or one that another attempt follows. If another
    /// follows, the session and the workspace reported so far are no longer valid.
    Attempted(Box<Attempted>),
    Finished(Answer),
    Failed(Failure),
}

impl Event {
    /// Whether this is the last event of the turn.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::Finished(_) | Self::Failed(_))
    }

    /// Returns a reference to the result of the turn, if this is the last event.
    #[must_use]
    pub fn as_end(&self) -> Option<Result<&Answer, &Failure>> {
        match self {
            Self::Finished(answer) => Some(Ok(answer)),
            Self::Failed(failure) => Some(Err(failure)),
            Self::Started { .. }
            | Self::Text { .. }
            | Self::Thinking { .. }
            | Self::ToolStarted { .. }
            | Self::ToolFinished { .. }
            | Self::ToolCall { .. }
            | Self::Notice { .. }
            | Self::Unknown { .. }
            | Self::Workspace(_)
            | Self::Attempted(_) => None,
        }
    }

    /// Returns the result of the turn, if this is the last event.
    #[must_use]
    pub fn end(self) -> Option<Result<Answer, Failure>> {
        match self {
            Self::Finished(answer) => Some(Ok(answer)),
            Self::Failed(failure) => Some(Err(failure)),
            Self::Started { .. }
            | Self::Text { .. }
            | Self::Thinking { .. }
            | Self::ToolStarted { .. }
            | Self::ToolFinished { .. }
            | Self::ToolCall { .. }
            | Self::Notice { .. }
            | Self::Unknown { .. }
            | Self::Workspace(_)
            | Self::Attempted(_) => None,
        }
    }
}

/// Answer of a successful turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The final message. Text that was streamed before a tool ran is not part of it.
    pub content: String,
    pub usage: Usage,
    pub finish: Finish,
    /// Calls that the client has to make before it gets an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// Values that the provider reports about its answer, such as its latency or its name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Log probabilities of the answer's tokens: JSON text in OpenAI's format, if the client asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<String>,
    /// Remarks of the gateway about the turn, for the client: what it could not do as asked, and what it did instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Members of the request that had no effect on the model that answered, by their wire names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// Further answers to the same request, if the client asked for several. Only HTTP upstreams give them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
}

/// One of several answers that an upstream gave to the same request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternative {
    pub content: String,
    pub finish: Finish,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// JSON text, as in [`Answer::logprobs`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<String>,
}

impl Answer {
    /// Creates an answer that consists of text only.
    #[must_use]
    pub fn new(content: impl Into<String>, usage: Usage, finish: Finish) -> Self {
        Self {
            content: content.into(),
            usage,
            finish,
            calls: Vec::new(),
            metadata: Map::new(),
            logprobs: None,
            notes: Vec::new(),
            ignored: Vec::new(),
            alternatives: Vec::new(),
        }
    }
}

/// Function call that a model asks its client to make.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON text as the model wrote it; may be invalid.
    pub arguments: String,
}

/// Result of one attempt of a turn on one provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempted {
    pub provider: String,
    /// Our name of the model.
    pub model: String,
    /// Category of the failure; none if the attempt succeeded.
    pub category: Option<Category>,
    /// Message of the failure.
    pub message: Option<String>,
    pub duration: Duration,
    /// Receipt of this attempt's workspace, if another attempt followed in another workspace.
    pub workspace: Option<Receipt>,
    /// Enforcement of the permissions; none if there were none to enforce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Enforcement>,
}

/// Mechanism that enforces the permissions `read` and `edit` of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The kernel, independently of the CLI.
    Kernel,
    /// The CLI's own sandbox for its tools.
    Cli,
    /// Only the flags of the CLI: the sandbox is off, or this machine has none.
    Off,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Stop,
    /// The answer reached the model's output limit.
    Length,
    ContentFilter,
    /// The model waits for results of the client's tools.
    ToolCalls,
}

/// Tokens of a turn, counted as OpenAI does: input includes cached input, output includes reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Part of the input that came from the provider's cache.
    #[serde(default)]
    pub cached_tokens: u64,
    /// The CLI reported no count, and four characters were counted as one token.
    pub estimated: bool,
}

impl Usage {
    /// Estimates the usage for a CLI that reports none: `ceil(chars / 4)`.
    #[must_use]
    pub fn estimate(input: &str, output: &str) -> Self {
        let tokens = |text: &str| (text.chars().count() as u64).div_ceil(4);
        Self { input_tokens: tokens(input), output_tokens: tokens(output), cached_tokens: 0, estimated: true }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            estimated: self.estimated || other.estimated,
        }
    }

    /// Usage of this turn if the CLI counts the whole session: the total now less the total `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(before.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(before.output_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(before.cached_tokens),
            estimated: self.estimated,
        }
    }
}

/// Changes that a run made in its own worktree, and where they are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Receipt {
    /// Commit that the run started from.
    pub base: String,
    /// Branch that holds the changes; none if there are none.
    pub branch: Option<String>,
    pub commit: Option<String>,
    /// Counted from `base` to `commit`. None if the changes could not be saved, so that their number is unknown.
    pub files_changed: Option<u64>,
    pub insertions: Option<u64>,
    pub deletions: Option<u64>,
    /// Folder of the worktree, if it was kept.
    pub path: Option<String>,
    /// Why the folder was kept without being asked for, or which part of the changes is not on the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Git references for commits of the run that are not on the branch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<String>,
    /// Violations of the model's policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Receipt {
    /// Creates the receipt of a run that changed nothing.
    #[must_use]
    pub fn unchanged() -> Self {
        Self { files_changed: Some(0), insertions: Some(0), deletions: Some(0), ..Self::default() }
    }
}

/// Id of a session that can be resumed. Decoders report the CLI's own id; surfaces see ours. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionId(pub Arc<str>);

impl Serialize for SessionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|id| Self(id.into()))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Session of a turn, and whether it was resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    /// Our id of the session.
    pub id: SessionId,
    /// The provider's own id, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<SessionId>,
    /// Whether the provider continued the session from its own memory.
    pub resumed: bool,
    /// Way in which the session was found; none if it is new.
    pub how: Option<FoundBy>,
    /// Why a new session was begun although the client asked to continue one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Way in which a session was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// By the id that the client sent.
    Id,
    /// By the history that the client sent.
    History,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_counts_four_characters_as_a_token_rounded_up() {
        for (text, tokens) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本語です", 2)] {
            assert_eq!(Usage::estimate(text, text).input_tokens, tokens, "{text}");
            assert_eq!(Usage::estimate(text, text).output_tokens, tokens, "{text}");
        }
    }

    #[test]
    fn usage_of_a_turn_is_the_difference_of_session_totals() {
        let total = Usage { input_tokens: 300, output_tokens: 30, cached_tokens: 10, estimated: false };
        let before = Usage { input_tokens: 200, output_tokens: 40, cached_tokens: 0, estimated: false };
        let turn = total.since(before);
        assert_eq!((turn.input_tokens, turn.output_tokens, turn.cached_tokens), (100, 0, 10));
    }
}
