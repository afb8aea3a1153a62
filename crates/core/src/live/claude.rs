//! Client of Claude Code's `--input-format stream-json`: control requests and responses between the messages of its usual
//! output. The response to `initialize` means that it is ready.

use serde_json::{Map, Value, json};

use super::ChannelOutput;
use super::exchange::{Greeting, MessageMeaning, to_line};
use super::servers;
use super::tool_offer::{CallKey, ClientCall, ToolOffer};
use crate::mcp::{self, McpRequest, OfferedTool};
use crate::mcp_server::McpServer;
use crate::vocabulary::Permissions;

/// Ids of our control requests.
const GREETING: &str = "greeting";
const INTERRUPT: &str = "interrupt";
const OFFER: &str = "offer";

#[derive(Debug)]
pub(super) struct ClaudeLive {
    permissions: Permissions,
    /// Tools of the client. Claude Code reaches them over stdio, as an MCP server of its SDK.
    tools: Vec<OfferedTool>,
    /// MCP servers of the model.
    servers: Vec<McpServer>,
}

impl ClaudeLive {
    pub(super) fn greet(greeting: Greeting) -> (Self, Vec<u8>) {
        let mut request = json!({"subtype": "initialize"});
        if let Some(system) = greeting.system {
            request["appendSystemPrompt"] = system.into();
        }
        let live = Self { permissions: greeting.permissions, tools: Vec::new(), servers: greeting.servers };
        (live, control(GREETING, request))
    }

    pub(super) fn send_prompt(&self, prompt: &str) -> Vec<u8> {
        // With `client_composed`, a slash or an `@` in the prompt is plain text.
        to_line(&json!({
            "type": "user",
            "message": {"role": "user", "content": prompt},
            "client_composed": true,
        }))
    }

    pub(super) fn offer(&mut self, offer: &ToolOffer) -> Vec<u8> {
        self.tools.clone_from(&offer.tools);
        self.servers.extend_from_slice(&offer.servers);
        self.set_servers()
    }

    /// Sets all servers: a later request replaces those of an earlier one.
    fn set_servers(&self) -> Vec<u8> {
        let ours = self.servers.iter().map(|server| (server.name.clone(), servers::for_claude(server)));
        let client = json!({"type": "sdk", "name": mcp::SERVER, "alwaysLoad": true});
        let client = (!self.tools.is_empty()).then(|| (mcp::SERVER.to_owned(), client));
        let all: Map<String, Value> = ours.chain(client).collect();
        control(OFFER, json!({"subtype": "mcp_set_servers", "servers": all}))
    }

    pub(super) fn interrupt(&self) -> Vec<u8> {
        control(INTERRUPT, json!({"subtype": "interrupt"}))
    }

    pub(super) fn receive(&self, message: &Value, output: &mut ChannelOutput) -> MessageMeaning {
        let field = |name: &str| message.get(name).and_then(Value::as_str);
        match field("type") {
            Some("control_response") => {
                let response = message.get("response").unwrap_or(&Value::Null);
                let greeted = response.get("request_id").and_then(Value::as_str) == Some(GREETING);
                let meaning = on_response(response);
                if matches!(meaning, MessageMeaning::Ready) && greeted && !self.servers.is_empty() {
                    output.reply.extend(self.set_servers());
                    return MessageMeaning::Ignored;
                }
                meaning
            }
            Some("control_request") => {
                if message.pointer("/request/subtype").and_then(Value::as_str) == Some("mcp_message") {
                    self.receive_mcp(message, output);
                } else {
                    output.reply.extend(self.answer_request(message));
                }
                MessageMeaning::Ignored
            }
            Some("control_cancel_request" | "command_lifecycle" | "conversation_reset" | "keep_alive") => {
                MessageMeaning::Ignored
            }
            Some("result") => MessageMeaning::EndsTurn,
            Some(_) | None => MessageMeaning::ForTurn,
        }
    }

    /// Takes a message to the MCP server of the client's tools.
    fn receive_mcp(&self, message: &Value, output: &mut ChannelOutput) {
        let request = message.get("request_id").cloned().unwrap_or_default();
        let inner = message.pointer("/request/message").unwrap_or(&Value::Null);
        match mcp::receive(&inner.to_string(), &self.tools) {
            McpRequest::Answered(answer) => {
                let answer = serde_json::from_str(&answer).unwrap_or_default();
                output.reply.extend(mcp_response(&request, &answer));
            }
            McpRequest::Notification => {
                output.reply.extend(mcp_response(&request, &json!({"jsonrpc": "2.0", "result": {}})));
            }
            McpRequest::Call(call) => output.calls.push(ClientCall {
                key: CallKey { request, message: call.id },
                name: call.name,
                arguments: call.arguments,
            }),
        }
    }

    /// Whether a tool belongs to the client or to one of our servers, which need no approval.
    fn may_call(&self, tool: &str) -> bool {
        let Some((server, tool)) = tool.strip_prefix("mcp__").and_then(|tool| tool.split_once("__")) else {
            return false;
        };
        let allows = |ours: &McpServer| {
            ours.name == server
                && ours.allowed_tools.as_ref().is_none_or(|tools| tools.iter().any(|allowed| allowed == tool))
        };
        server == mcp::SERVER || self.servers.iter().any(allows)
    }

    /// Answers a control request: whether a tool may be used, or something that we do not support.
    fn answer_request(&self, message: &Value) -> Vec<u8> {
        let id = message.get("request_id").unwrap_or(&Value::Null);
        let request = message.get("request").unwrap_or(&Value::Null);
        let tool = request.get("tool_name").and_then(Value::as_str).unwrap_or_default();
        let permissions = if self.may_call(tool) { Permissions::Full } else { self.permissions };
        let response = match (request.get("subtype").and_then(Value::as_str), permissions) {
            (Some("can_use_tool"), Permissions::Full) => {
                let input = request.get("input").unwrap_or(&Value::Null);
                json!({"subtype": "success", "request_id": id, "response": {"behavior": "allow", "updatedInput": input}})
            }
            (Some("can_use_tool"), Permissions::Read | Permissions::Edit) => {
                let denied = json!({"behavior": "deny", "message": "the permissions of this model do not allow this"});
                json!({"subtype": "success", "request_id": id, "response": denied})
            }
            _ => json!({"subtype": "error", "request_id": id, "error": "not supported"}),
        };
        to_line(&json!({"type": "control_response", "response": response}))
    }
}

fn on_response(response: &Value) -> MessageMeaning {
    let field = |name: &str| response.get(name).and_then(Value::as_str);
    let asked = match field("request_id") {
        Some(GREETING) => "initialize",
        Some(OFFER) => "mcp_set_servers",
        _ => return MessageMeaning::Ignored,
    };
    let errors = response.pointer("/response/errors").and_then(Value::as_object);
    match (field("subtype"), errors.and_then(|errors| errors.values().next())) {
        (Some("success"), None) => MessageMeaning::Ready,
        (Some("success"), Some(error)) => MessageMeaning::Broken(format!("{asked} failed: {error}")),
        _ => MessageMeaning::Broken(field("error").map_or_else(|| format!("{asked} was refused"), str::to_owned)),
    }
}

/// The answer to a call of a client's tool.
pub(super) fn answer_call(key: &CallKey, result: Result<&str, &str>) -> Vec<u8> {
    let answer = match result {
        Ok(text) => mcp::call_result(&key.message, text),
        Err(reason) => mcp::call_failed(&key.message, reason),
    };
    mcp_response(&key.request, &answer)
}

fn mcp_response(request: &Value, answer: &Value) -> Vec<u8> {
    let response = json!({"subtype": "success", "request_id": request, "response": {"mcp_response": answer}});
    to_line(&json!({"type": "control_response", "response": response}))
}

fn control(id: &str, request: Value) -> Vec<u8> {
    to_line(&json!({"type": "control_request", "request_id": id, "request": request}))
}
