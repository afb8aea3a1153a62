//! Types that all live protocols share: the greeting, and the meaning of a received message.

use serde_json::Value;

use crate::mcp_server::McpServer;
use crate::vocabulary::Permissions;

/// Method of a note that is added to the decoder's input after a refused permission request. A CLI does not always report
/// why it stops there.
pub(crate) const PERMISSION_REFUSED: &str = "trunkline/permission_refused";

/// Settings that a process gets before its first turn, in addition to its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Greeting {
    /// Working directory of the conversation.
    pub cwd: String,
    /// Model, if no argument sets it.
    pub model: Option<String>,
    /// The protocol's name of the permission level, if no argument sets it.
    pub mode: Option<String>,
    /// Model without a server for a first prompt that fails, before the process is ready.
    pub primer: Option<String>,
    /// System prompt, if the protocol takes it separately.
    pub system: Option<String>,
    /// Permissions that decide about requests of the process.
    pub permissions: Permissions,
    /// MCP servers that the process connects to.
    pub servers: Vec<McpServer>,
    /// The user's own MCP servers that the process must not use, if no argument says so.
    pub servers_off: Vec<String>,
    /// Session to resume, for a protocol that takes it here.
    pub session: Option<String>,
}

/// Meaning of a message from the process.
pub(super) enum MessageMeaning {
    /// Part of the turn.
    ForTurn,
    /// Last message of the turn.
    EndsTurn,
    /// Part of the turn, together with a note of ours for the decoder.
    ForTurnWithNote(Value),
    /// Not part of a turn.
    Ignored,
    /// The greeting was accepted.
    Ready,
    /// The process cannot be used, with the reason.
    Broken(String),
}

/// Serializes a message as one line.
pub(super) fn to_line(message: &Value) -> Vec<u8> {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}
