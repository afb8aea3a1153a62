//! Tools of the client that a kept process gets before a turn, and its calls of them.

use serde_json::Value;

use crate::mcp::OfferedTool;
use crate::mcp_server::McpServer;

/// Tools of the client for one conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolOffer {
    pub tools: Vec<OfferedTool>,
    /// MCP servers of the request, in addition to those of the greeting.
    pub servers: Vec<McpServer>,
    /// MCP server that takes the calls, for a protocol that has no place for them.
    pub server: Option<ToolServer>,
}

/// MCP server over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServer {
    pub url: String,
    /// Secret that the process has to present.
    pub token: String,
}

/// Call of a client's tool over the stdio of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCall {
    pub key: CallKey,
    /// Name of the offered tool.
    pub name: String,
    /// JSON text of the arguments.
    pub arguments: String,
}

/// Identity of a call in its protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallKey {
    /// Id of the request that the answer has to name.
    pub(super) request: Value,
    /// Id of the MCP message inside, if there is one.
    pub(super) message: Value,
}
