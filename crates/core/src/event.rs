//! What an agent did, step by step: the only thing that travels from providers to surfaces.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::{Category, Failure};

// Aliases for the users in other crates. TODO: rename them there.
#[doc(hidden)]
pub use self::{Enforcement as Held, ToolCall as Call};

/// One step of a turn: `Started`, any steps, then exactly one of `Finished` and `Failed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The CLI named its session or the model that answers. May come more than once.
    Started {
        session: Option<SessionId>,
        model: Option<String>,
    },
    /// A piece of the answer, to be shown as it comes.
    Text {
        delta: String,
    },
    /// A piece of the agent's reasoning; never part of the answer.
    Thinking {
        delta: String,
    },
    /// A tool is running: the idle limit waits for its end.
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
    /// A piece of a call that the client is to make itself: the name first, then the arguments as they come.
    ToolCall {
        index: u32,
        id: Option<String>,
        name: Option<String>,
        arguments: String,
    },
    /// Something the CLI said about itself: a retry, a warning. Not an error of the turn.
    Notice {
        message: String,
    },
    /// A line that no rule knows: kept and shown, never dropped, never an error.
    Unknown {
        line: String,
    },
    /// What the run left in its own worktree.
    Workspace(Receipt),
    /// A try of the turn is over: the last one before `Finished` or `Failed`, others when another follows. What was
    /// said of session and workspace before it is no longer true then.
    Attempted(Box<Attempted>),
    Finished(Answer),
    Failed(Failure),
}

impl Event {
    /// Whether nothing follows on it.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::Finished(_) | Self::Failed(_))
    }

    /// How the turn ended, if this event ends it.
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

/// The whole of a successful turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The final message. Text that was streamed before a tool ran is not in it.
    pub content: String,
    pub usage: Usage,
    pub finish: Finish,
    /// Calls the client is asked to make before it gets an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// What the provider says about its answer, for whoever wants to know: its own latency, its own name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Answer {
    /// An answer that is nothing but text.
    #[must_use]
    pub fn new(content: impl Into<String>, usage: Usage, finish: Finish) -> Self {
        Self { content: content.into(), usage, finish, calls: Vec::new(), metadata: Map::new() }
    }
}

/// A function that a model asks its client to call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON, as far as the model got it right.
    pub arguments: String,
}

/// One try of a turn on one provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempted {
    pub provider: String,
    /// The model it was tried on, by our name for it.
    pub model: String,
    /// Why it failed; none when it answered.
    pub category: Option<Category>,
    /// What it said about that.
    pub message: Option<String>,
    pub duration: Duration,
    /// What it left behind, when another try followed in a workspace of its own.
    pub workspace: Option<Receipt>,
    /// Who held it to its permissions; none where it had none to be held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Enforcement>,
}

/// By whom a run is held to the permissions `read` and `edit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The kernel, whatever the CLI does.
    Kernel,
    /// A sandbox that the CLI has for its tools.
    Cli,
    /// Nobody but the CLI's own good will: the sandbox is off, or this machine has none.
    Off,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Stop,
    /// Cut off by the model's own output limit.
    Length,
    ContentFilter,
    /// It waits for the client's tools.
    ToolCalls,
}

/// Tokens of a turn, in OpenAI's sense: input includes what came from a cache, output includes reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// How much of the input came from the provider's cache.
    #[serde(default)]
    pub cached_tokens: u64,
    /// True when the CLI reported nothing and four characters were taken for a token.
    pub estimated: bool,
}

impl Usage {
    /// `ceil(chars / 4)`, the estimate for a CLI that reports nothing.
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

    /// What this turn cost when the CLI counts the whole session: its total less the total before.
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

/// What a run did in a worktree of its own, and where it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Receipt {
    /// The commit the run started from.
    pub base: String,
    /// The branch that keeps the work; none when nothing changed.
    pub branch: Option<String>,
    pub commit: Option<String>,
    /// Counted from `base` to `commit`; none when the work could not be saved, so that nothing is known of it.
    pub files_changed: Option<u64>,
    pub insertions: Option<u64>,
    pub deletions: Option<u64>,
    /// The folder, when it was kept.
    pub path: Option<String>,
    /// Why the folder was kept although that was not asked for, or which part of the work is not on the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// References beside the branch, for commits of the run that are not on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<String>,
    /// Things about the work that the policy of its model does not allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Receipt {
    /// The receipt for a run that changed nothing.
    #[must_use]
    pub fn unchanged() -> Self {
        Self { files_changed: Some(0), insertions: Some(0), deletions: Some(0), ..Self::default() }
    }
}

/// The name of a conversation that can be resumed: the CLI's own where a decoder reports it, ours where a surface sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub String);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a turn came to its conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    /// Our name for it.
    pub id: SessionId,
    /// What the provider itself calls it, once it has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<SessionId>,
    /// Whether the provider went on with what it remembers.
    pub resumed: bool,
    /// How it was found; none when it was begun anew.
    pub how: Option<FoundBy>,
    /// Why it was begun anew although something else was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// By what a conversation was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// The client named it.
    Id,
    /// The client sent all that was said in it.
    History,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_characters_are_a_token_rounded_up() {
        for (text, tokens) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本語です", 2)] {
            assert_eq!(Usage::estimate(text, text).input_tokens, tokens, "{text}");
            assert_eq!(Usage::estimate(text, text).output_tokens, tokens, "{text}");
        }
    }

    #[test]
    fn a_session_total_becomes_a_turns_own_usage() {
        let total = Usage { input_tokens: 300, output_tokens: 30, cached_tokens: 10, estimated: false };
        let before = Usage { input_tokens: 200, output_tokens: 40, cached_tokens: 0, estimated: false };
        let turn = total.since(before);
        assert_eq!((turn.input_tokens, turn.output_tokens, turn.cached_tokens), (100, 0, 10));
    }
}
