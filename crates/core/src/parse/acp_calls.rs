//! State of a turn over the Agent Client Protocol.

use serde_json::Value;

/// State of an ACP turn that other formats do not have.
#[derive(Debug, Default)]
pub(super) struct AcpProgress {
    pub(super) calls: Vec<AcpToolCall>,
    /// Title of the tool whose permission was refused, as long as the agent has sent no text after it.
    pub(super) refused: Option<String>,
    /// Length of the reasoning, for an estimate of its tokens.
    pub(super) thought_chars: u64,
}

/// Tool call that was announced.
#[derive(Debug)]
pub(super) struct AcpToolCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) input: Value,
    pub(super) state: AcpCallState,
}

/// State of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcpCallState {
    /// The model still writes its arguments.
    Announced,
    Running,
    /// Kept in the list, because some agents report the failure of a refused call and some do not.
    Finished,
}
