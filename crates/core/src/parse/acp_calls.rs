//! The tool calls of a turn over the Agent Client Protocol.

use serde_json::Value;

/// State of a turn beside its transcript.
#[derive(Debug, Default)]
pub(super) struct AcpProgress {
    pub(super) calls: Vec<AcpToolCall>,
    /// The refused permission after which the agent has said nothing yet.
    pub(super) refused: Option<String>,
    pub(super) thought_chars: u64,
}

#[derive(Debug)]
pub(super) struct AcpToolCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) input: Value,
    pub(super) state: AcpCallState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcpCallState {
    /// The model is still writing its arguments.
    Announced,
    Running,
    /// Kept, because some agents report the failure of a refused call and some do not.
    Over,
}
