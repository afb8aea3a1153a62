//! Cases about MCP servers that the gateway gives to a CLI: those of its model, and those of a request.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::conformance::clis::CliUnderTest;
use crate::conformance::context::{CaseContext, content, equal, holds};
use crate::conformance::http::SentHttpRequest;
use crate::conformance::mcp_test_server::{ADDRESS, PROGRAM, TOKEN};
use crate::conformance::tap::TappedCall;
use crate::conformance::world::KEYS;

/// A server over HTTP. The token is the default of a variable that is not set.
pub(super) const HTTP: fn(&CliUnderTest) -> Value = |_| {
    let headers = json!({"Authorization": format!("Bearer ${{HARBOUR_TOKEN:-{TOKEN}}}"), "X-Case": "mcp-model"});
    json!({"permissions": "read", "mcpServers": {"harbour": {"url": format!("{ADDRESS}/mcp"), "headers": headers}}})
};

/// A server over stdio, for a CLI without tools of its own.
pub(super) const STDIO_ONLY: fn(&CliUnderTest) -> Value = |_| {
    let server = json!({"command": "python3", "args": [PROGRAM, "--stdio"], "env": {"HARBOUR_KEEPER": "Ingrid"}});
    json!({"ownTools": "off", "mcpServers": {"harbour": server}})
};

pub(super) const ALLOWED: fn(&CliUnderTest) -> Value = |_| json!({"allowMcpServers": [format!("{ADDRESS}/*")]});

pub(super) fn of_model(context: &CaseContext<'_>) -> Result<()> {
    let reply = context.ask("Read the harbour log, page nine.")?;
    equal("the answer", content(&reply)?.as_str(), "A berth is free.")?;
    equal("calls of the server", context.world.mcp_server.calls("mcp-model")?, vec!["harbour_log".to_owned()])?;
    model_receives(context, "harbour_log nine: berth 7 is free")?;
    holds("the token is not in the gateway's log", !context.world.gateway.log().contains(TOKEN))
}

pub(super) fn of_model_over_stdio(context: &CaseContext<'_>) -> Result<()> {
    let reply = context.ask("Read the harbour log, page nine.")?;
    equal("the answer", content(&reply)?.as_str(), "A berth is free.")?;
    model_receives(context, "harbour_log nine: berth 7 is free, says Ingrid")?;
    let first =
        context.tap.calls().into_iter().find(|call| !call.tools().is_empty()).context("no call of the model")?;
    let mut offered = first.tools();
    offered.retain(|name| !name.contains("harbour_"));
    // Tools for the resources of MCP servers come with any server.
    offered.retain(|name| !name.contains("mcp_resource"));
    let left: BTreeSet<String> = context.world.cli.own_tools_left.iter().map(|name| (*name).to_owned()).collect();
    let left = left.into_iter().filter(|name| !name.contains("mcp_resource")).collect();
    equal("tools that are not the server's", offered, left)
}

/// The model also calls a tool that the request does not allow.
pub(super) fn of_request(context: &CaseContext<'_>) -> Result<()> {
    let server = json!({
        "type": "mcp", "server_label": "harbour", "server_url": format!("{}/mcp", context.world.mcp_server.address),
        "authorization": TOKEN, "headers": {"X-Case": "mcp-request"}, "allowed_tools": ["harbour_log"],
        "require_approval": "never",
    });
    let body =
        json!({"model": context.case.name, "input": "Open the gate, then read the harbour log.", "tools": [server]});
    let (address, headers) = (context.world.gateway.address, [("x-api-key", KEYS[0])]);
    let reply = SentHttpRequest::post(address, "/v1/responses", &headers, &body.to_string())?.reply()?;
    let text = reply.text();
    equal(&format!("the status of {text}"), reply.status(), 200)?;
    holds(&format!("the answer is given: {text}"), text.contains("The log is read."))?;
    holds(&format!("the token is not repeated: {text}"), !text.contains(TOKEN))?;
    model_receives(context, "harbour_log nine: berth 7 is free")?;
    let calls = context.world.mcp_server.calls("mcp-request")?;
    let called_gate = calls.iter().any(|tool| tool == "harbour_gate");
    let noted = reply.json()["trunkline"]["notes"].to_string().contains("allowed_tools");
    equal("the tool that is not allowed was called, and a note says so", (called_gate, noted), (noted, called_gate))
}

fn model_receives(context: &CaseContext<'_>, result: &str) -> Result<()> {
    let receives = |call: &TappedCall| call.contains(result);
    holds("the model receives the result of the server", context.tap.calls().iter().any(receives))
}
