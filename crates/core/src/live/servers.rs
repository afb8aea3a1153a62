//! MCP servers in the words of each protocol. The tools of these servers need no approval: the operator of the gateway has named
//! the servers, or allowed their addresses.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::mcp_server::{McpServer, McpTransport};

/// A server as Claude Code takes it in `mcp_set_servers`.
pub(super) fn for_claude(server: &McpServer) -> Value {
    // With `alwaysLoad`, the model sees the tools at once instead of having to search for them.
    match &server.transport {
        McpTransport::Http { url, headers } => {
            json!({"type": "http", "url": url, "headers": headers, "alwaysLoad": true})
        }
        McpTransport::Stdio { command, args, env } => {
            json!({"type": "stdio", "command": command, "args": args, "env": env, "alwaysLoad": true})
        }
    }
}

/// The `config` of a Codex thread: our servers, and the user's own servers that are switched off.
pub(super) fn for_app_server(servers: &[McpServer], switched_off: &[String]) -> Option<Value> {
    let off = switched_off.iter().map(|name| (name.clone(), json!({"enabled": false})));
    let ours = servers.iter().map(|server| (server.name.clone(), codex_server(server)));
    let table: Map<String, Value> = off.chain(ours).collect();
    (!table.is_empty()).then(|| json!({"mcp_servers": table}))
}

fn codex_server(server: &McpServer) -> Value {
    let mut config = match &server.transport {
        McpTransport::Http { url, headers } => json!({"url": url, "http_headers": headers}),
        McpTransport::Stdio { command, args, env } => json!({"command": command, "args": args, "env": env}),
    };
    // Otherwise a turn does not wait for the server, and the model has to search for the tools.
    config["required"] = true.into();
    config["omit_tools_from"] = json!(["deferred"]);
    config["default_tools_approval_mode"] = "approve".into();
    if let Some(tools) = &server.allowed_tools {
        config["enabled_tools"] = json!(tools);
    }
    config
}

/// A server as the Agent Client Protocol has it.
pub(super) fn for_acp(server: &McpServer) -> Value {
    let pairs = |values: &BTreeMap<String, String>| -> Vec<Value> {
        values.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
    };
    match &server.transport {
        McpTransport::Http { url, headers } => {
            json!({"type": "http", "name": server.name, "url": url, "headers": pairs(headers)})
        }
        McpTransport::Stdio { command, args, env } => {
            json!({"name": server.name, "command": command, "args": args, "env": pairs(env)})
        }
    }
}
