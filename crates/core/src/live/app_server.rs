//! Client of Codex's `app-server`: `initialize`, a thread, then turns. Only messages about the current turn are passed on:
//! a resumed thread repeats counts of its past, and other threads may send messages too.

use serde_json::{Value, json};

use super::ChannelOutput;
use super::exchange::{Greeting, MessageMeaning};
use super::rpc::{self, Rpc, RpcMessage};
use super::servers;
use super::tool_offer::{CallKey, ClientCall, ToolOffer};
use crate::mcp;
use crate::vocabulary::Permissions;

#[derive(Debug)]
pub(super) struct AppServerLive {
    rpc: Rpc,
    greeting: Greeting,
    thread: String,
    /// Id of the turn in flight, once it is known.
    turn: Option<String>,
    pending: AppServerPending,
}

/// Request whose answer is awaited, with its number.
#[derive(Debug)]
enum AppServerPending {
    Initialize(u64),
    NewThread(u64),
    /// Resuming a thread, and the turn to start in it.
    ResumeThread(u64, TurnInput),
    StartTurn(u64),
    Nothing,
}

/// Input of a turn.
#[derive(Debug)]
pub(super) struct TurnInput {
    prompt: String,
    /// JSON Schema of the answer.
    schema: Option<Value>,
}

impl TurnInput {
    pub(super) fn new(prompt: &str, schema: Option<&str>) -> Self {
        Self { prompt: prompt.to_owned(), schema: schema.and_then(|schema| serde_json::from_str(schema).ok()) }
    }
}

impl AppServerLive {
    pub(super) fn greet(greeting: Greeting) -> (Self, Vec<u8>) {
        let mut rpc = Rpc::new(false);
        let (id, line) = rpc.request(
            "initialize",
            json!({
                "clientInfo": rpc::client(),
                // For the client's tools.
                "capabilities": {"experimentalApi": true},
            }),
        );
        let pending = AppServerPending::Initialize(id);
        (Self { rpc, greeting, thread: String::new(), turn: None, pending }, line)
    }

    pub(super) fn send_prompt(&mut self, input: TurnInput, session: Option<&str>) -> Vec<u8> {
        self.turn = None;
        match session {
            Some(session) if session != self.thread => {
                session.clone_into(&mut self.thread);
                let mut params = self.settings();
                params["threadId"] = session.into();
                let (id, line) = self.rpc.request("thread/resume", params);
                self.pending = AppServerPending::ResumeThread(id, input);
                line
            }
            Some(_) | None => self.start_turn(input),
        }
    }

    /// Starts another thread, which has the tools. The name of a tool may be that of one of Codex's own tools: a namespace keeps
    /// them apart.
    pub(super) fn offer(&mut self, offer: &ToolOffer) -> Vec<u8> {
        self.greeting.servers.extend_from_slice(&offer.servers);
        let tools: Vec<Value> = offer
            .tools
            .iter()
            .map(|tool| {
                let schema: Value = serde_json::from_str(tool.schema.as_str()).unwrap_or_default();
                let description = tool.description.as_deref().unwrap_or_default();
                json!({"type": "function", "name": tool.name, "description": description, "inputSchema": schema})
            })
            .collect();
        let mut settings = self.settings();
        let description = "Tools of the application that asked";
        if !tools.is_empty() {
            settings["dynamicTools"] =
                json!([{"type": "namespace", "name": mcp::SERVER, "description": description, "tools": tools}]);
        }
        let (id, line) = self.rpc.request("thread/start", settings);
        self.pending = AppServerPending::NewThread(id);
        line
    }

    /// The answer to a call of a client's tool.
    pub(super) fn answer_call(&self, key: &CallKey, result: Result<&str, &str>) -> Vec<u8> {
        let (text, success) = match result {
            Ok(text) => (text, true),
            Err(reason) => (reason, false),
        };
        let result = json!({"contentItems": [{"type": "inputText", "text": text}], "success": success});
        self.rpc.result(&key.request, result)
    }

    pub(super) fn interrupt(&mut self) -> Vec<u8> {
        let Some(turn) = &self.turn else { return Vec::new() };
        let params = json!({"threadId": self.thread, "turnId": turn});
        self.rpc.request("turn/interrupt", params).1
    }

    pub(super) fn receive(&mut self, message: &Value, output: &mut ChannelOutput) -> MessageMeaning {
        match rpc::read(message) {
            RpcMessage::Result(id, result) => self.on_result(id, result, &mut output.reply),
            RpcMessage::Error(id, error) => self.on_error(id, error),
            RpcMessage::Request(id, "item/tool/call", params) => {
                output.calls.push(ClientCall {
                    key: CallKey { request: id.clone(), message: Value::Null },
                    name: params.get("tool").and_then(Value::as_str).unwrap_or_default().to_owned(),
                    arguments: params.get("arguments").map_or_else(|| "{}".to_owned(), Value::to_string),
                });
                MessageMeaning::Ignored
            }
            RpcMessage::Request(id, method, _) => {
                output.reply.extend(self.answer_request(id, method));
                MessageMeaning::Ignored
            }
            RpcMessage::Notification(method, params) => self.on_notification(method, params),
            RpcMessage::Other => MessageMeaning::Ignored,
        }
    }

    fn on_result(&mut self, id: u64, result: &Value, reply: &mut Vec<u8>) -> MessageMeaning {
        match std::mem::replace(&mut self.pending, AppServerPending::Nothing) {
            AppServerPending::Initialize(expected) if id == expected => {
                reply.extend(self.rpc.notification("initialized", None));
                let (id, line) = self.rpc.request("thread/start", self.settings());
                self.pending = AppServerPending::NewThread(id);
                reply.extend(line);
            }
            AppServerPending::NewThread(expected) if id == expected => {
                let Some(thread) = result.pointer("/thread/id").and_then(Value::as_str) else {
                    return MessageMeaning::Broken("the answer to thread/start has no thread id".to_owned());
                };
                thread.clone_into(&mut self.thread);
                return MessageMeaning::Ready;
            }
            AppServerPending::ResumeThread(expected, input) if id == expected => reply.extend(self.start_turn(input)),
            AppServerPending::StartTurn(expected) if id == expected => {
                self.turn = result.pointer("/turn/id").and_then(Value::as_str).map(str::to_owned);
            }
            other @ (AppServerPending::Initialize(_)
            | AppServerPending::NewThread(_)
            | AppServerPending::ResumeThread(..)
            | AppServerPending::StartTurn(_)
            | AppServerPending::Nothing) => self.pending = other,
        }
        MessageMeaning::Ignored
    }

    fn on_error(&mut self, id: u64, error: &Value) -> MessageMeaning {
        match self.pending {
            AppServerPending::Initialize(expected) | AppServerPending::NewThread(expected) if id == expected => {
                MessageMeaning::Broken(rpc::error_text(error))
            }
            AppServerPending::ResumeThread(expected, _) | AppServerPending::StartTurn(expected) if id == expected => {
                self.pending = AppServerPending::Nothing;
                MessageMeaning::EndsTurn
            }
            AppServerPending::Initialize(_)
            | AppServerPending::NewThread(_)
            | AppServerPending::ResumeThread(..)
            | AppServerPending::StartTurn(_)
            | AppServerPending::Nothing => MessageMeaning::Ignored,
        }
    }

    fn on_notification(&self, method: &str, params: &Value) -> MessageMeaning {
        let turn = params.get("turnId").or_else(|| params.pointer("/turn/id")).and_then(Value::as_str);
        let thread = params.get("threadId").and_then(Value::as_str);
        if turn.is_none() || turn != self.turn.as_deref() || thread.is_some_and(|thread| thread != self.thread) {
            return MessageMeaning::Ignored;
        }
        if method == "turn/completed" { MessageMeaning::EndsTurn } else { MessageMeaning::ForTurn }
    }

    /// Answers a request of Codex. Codex is configured never to ask for approval; if it does, its permissions decide.
    fn answer_request(&self, id: &Value, method: &str) -> Vec<u8> {
        if !method.ends_with("/requestApproval") {
            return self.rpc.unsupported(id, method);
        }
        let decision = match self.greeting.permissions {
            Permissions::Full => "accept",
            Permissions::Read | Permissions::Edit => "decline",
        };
        self.rpc.result(id, json!({"decision": decision}))
    }

    fn start_turn(&mut self, input: TurnInput) -> Vec<u8> {
        let mut params = json!({"threadId": self.thread, "input": [{"type": "text", "text": input.prompt}]});
        if let Some(schema) = input.schema {
            params["outputSchema"] = schema;
        }
        let (id, line) = self.rpc.request("turn/start", params);
        self.pending = AppServerPending::StartTurn(id);
        line
    }

    fn settings(&self) -> Value {
        let Greeting { cwd, model, mode, system, servers, servers_off, .. } = &self.greeting;
        let mut settings = json!({"cwd": cwd, "approvalPolicy": "never"});
        for (name, value) in [("model", model), ("sandbox", mode), ("developerInstructions", system)] {
            if let Some(value) = value {
                settings[name] = value.as_str().into();
            }
        }
        if let Some(config) = servers::for_app_server(servers, servers_off) {
            settings["config"] = config;
        }
        settings
    }
}
