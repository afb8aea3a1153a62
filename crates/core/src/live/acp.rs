//! Client of the Agent Client Protocol (ACP): `initialize`, a new session, its model and mode, then prompts.
//!
//! The agent sends requests as well. Permission requests are answered by the permissions of the model. Files and terminals
//! are not offered.
//!
//! An agent that does part of its start-up at its first prompt gets one ahead of time, in a session of its own and with a
//! model that cannot answer. The turns use the next session, whatever the result of that prompt is.

use serde_json::{Value, json};

use super::exchange::{Greeting, MessageMeaning, PERMISSION_REFUSED};
use super::rpc::{self, Rpc, RpcMessage};
use super::servers;
use super::tool_offer::{ToolOffer, ToolServer};
use crate::mcp;
use crate::vocabulary::Permissions;

#[derive(Debug)]
pub(super) struct AcpLive {
    rpc: Rpc,
    greeting: Greeting,
    session: String,
    pending: AcpPending,
    /// Options of the session that are set, of those in the greeting.
    options_set: usize,
    /// MCP server with the client's tools.
    server: Option<ToolServer>,
}

/// Request whose answer is awaited, with its number.
#[derive(Debug)]
enum AcpPending {
    Initialize(u64),
    NewSession(u64),
    /// Loading the session of the greeting.
    LoadSession(u64),
    /// Setting the model that cannot answer.
    SetPrimer(u64),
    /// The prompt to the model that cannot answer.
    PrimerPrompt(u64),
    /// Setting a model or a mode.
    SetOption(u64),
    Prompt(u64),
    Nothing,
}

impl AcpLive {
    pub(super) fn greet(greeting: Greeting) -> (Self, Vec<u8>) {
        let mut rpc = Rpc::new(true);
        let capabilities = json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": rpc::client()});
        let (id, line) = rpc.request("initialize", params);
        let pending = AcpPending::Initialize(id);
        (Self { rpc, greeting, session: String::new(), pending, options_set: 0, server: None }, line)
    }

    /// Begins another session, which has the tools.
    pub(super) fn offer(&mut self, offer: &ToolOffer) -> Vec<u8> {
        self.server.clone_from(&offer.server);
        self.greeting.servers.extend_from_slice(&offer.servers);
        let mut line = Vec::new();
        self.begin_session(&mut line);
        line
    }

    pub(super) fn send_prompt(&mut self, prompt: &str) -> Vec<u8> {
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": prompt}]});
        let (id, line) = self.rpc.request("session/prompt", params);
        self.pending = AcpPending::Prompt(id);
        line
    }

    pub(super) fn interrupt(&self) -> Vec<u8> {
        self.rpc.notification("session/cancel", Some(json!({"sessionId": self.session})))
    }

    pub(super) fn receive(&mut self, message: &Value, reply: &mut Vec<u8>) -> MessageMeaning {
        match rpc::read(message) {
            RpcMessage::Result(id, result) => self.on_result(id, result, reply),
            RpcMessage::Error(id, error) => self.on_error(id, error, reply),
            RpcMessage::Request(id, "session/request_permission", params) => {
                let (line, allowed) = self.answer_permission_request(id, params);
                reply.extend(line);
                if allowed { MessageMeaning::ForTurn } else { MessageMeaning::ForTurnWithNote(refusal_note(params)) }
            }
            RpcMessage::Request(id, method, _) => {
                reply.extend(self.rpc.unsupported(id, method));
                MessageMeaning::Ignored
            }
            RpcMessage::Notification("session/update", params) => {
                let ours = params.get("sessionId").and_then(Value::as_str) == Some(self.session.as_str());
                if ours { MessageMeaning::ForTurn } else { MessageMeaning::Ignored }
            }
            RpcMessage::Notification(..) | RpcMessage::Other => MessageMeaning::Ignored,
        }
    }

    fn on_result(&mut self, id: u64, result: &Value, reply: &mut Vec<u8>) -> MessageMeaning {
        match self.pending {
            AcpPending::Initialize(expected) if id == expected => self.begin_session(reply),
            AcpPending::NewSession(expected) if id == expected => {
                let Some(session) = result.get("sessionId").and_then(Value::as_str) else {
                    return MessageMeaning::Broken("the answer to session/new has no session id".to_owned());
                };
                session.clone_into(&mut self.session);
                match self.greeting.primer.take() {
                    Some(primer) => self.set_primer(&primer, reply),
                    None => self.set_next_option(reply),
                }
            }
            AcpPending::LoadSession(expected) if id == expected => self.set_next_option(reply),
            AcpPending::SetPrimer(expected) if id == expected => {
                reply.extend(self.send_prompt("."));
                self.pending = AcpPending::PrimerPrompt(self.rpc.last());
                MessageMeaning::Ignored
            }
            AcpPending::PrimerPrompt(expected) if id == expected => self.begin_session(reply),
            AcpPending::SetOption(expected) if id == expected => self.set_next_option(reply),
            AcpPending::Prompt(expected) if id == expected => {
                self.pending = AcpPending::Nothing;
                MessageMeaning::EndsTurn
            }
            AcpPending::Initialize(_)
            | AcpPending::NewSession(_)
            | AcpPending::LoadSession(_)
            | AcpPending::SetPrimer(_)
            | AcpPending::PrimerPrompt(_)
            | AcpPending::SetOption(_)
            | AcpPending::Prompt(_)
            | AcpPending::Nothing => MessageMeaning::Ignored,
        }
    }

    fn begin_session(&mut self, reply: &mut Vec<u8>) -> MessageMeaning {
        let client = self.server.iter().map(|ToolServer { url, token }| {
            let bearer = json!({"name": "Authorization", "value": format!("Bearer {token}")});
            json!({"type": "http", "name": mcp::SERVER, "url": url, "headers": [bearer]})
        });
        // The session of the primer calls no tool.
        let ours = self.greeting.servers.iter().filter(|_| self.greeting.primer.is_none()).map(servers::for_acp);
        let mut params = json!({"cwd": self.greeting.cwd, "mcpServers": client.chain(ours).collect::<Vec<_>>()});
        self.options_set = 0;
        let resumed = self.greeting.session.clone().filter(|_| self.greeting.primer.is_none());
        let line = match resumed {
            Some(session) => {
                params["sessionId"] = session.as_str().into();
                self.session = session;
                let (id, line) = self.rpc.request("session/load", params);
                self.pending = AcpPending::LoadSession(id);
                line
            }
            None => {
                let (id, line) = self.rpc.request("session/new", params);
                self.pending = AcpPending::NewSession(id);
                line
            }
        };
        reply.extend(line);
        MessageMeaning::Ignored
    }

    fn set_primer(&mut self, primer: &str, reply: &mut Vec<u8>) -> MessageMeaning {
        let (id, line) = self.rpc.request("session/set_model", json!({"sessionId": self.session, "modelId": primer}));
        self.pending = AcpPending::SetPrimer(id);
        reply.extend(line);
        MessageMeaning::Ignored
    }

    /// Sets the next option of the greeting; ready if there is none left.
    fn set_next_option(&mut self, reply: &mut Vec<u8>) -> MessageMeaning {
        let model = self.greeting.model.as_ref().map(|model| ("session/set_model", "modelId", model));
        let mode = self.greeting.mode.as_ref().map(|mode| ("session/set_mode", "modeId", mode));
        let Some((method, name, value)) = model.into_iter().chain(mode).nth(self.options_set) else {
            self.pending = AcpPending::Nothing;
            return MessageMeaning::Ready;
        };
        self.options_set += 1;
        let (id, line) = self.rpc.request(method, json!({"sessionId": self.session, name: value}));
        self.pending = AcpPending::SetOption(id);
        reply.extend(line);
        MessageMeaning::Ignored
    }

    fn on_error(&mut self, id: u64, error: &Value, reply: &mut Vec<u8>) -> MessageMeaning {
        match self.pending {
            // Without the primer, the session is unused and can serve the turns.
            AcpPending::SetPrimer(expected) if id == expected => self.set_next_option(reply),
            AcpPending::PrimerPrompt(expected) if id == expected => self.begin_session(reply),
            AcpPending::Initialize(expected)
            | AcpPending::NewSession(expected)
            | AcpPending::LoadSession(expected)
            | AcpPending::SetOption(expected)
                if id == expected =>
            {
                MessageMeaning::Broken(rpc::error_text(error))
            }
            AcpPending::Prompt(expected) if id == expected => {
                self.pending = AcpPending::Nothing;
                MessageMeaning::EndsTurn
            }
            AcpPending::Initialize(_)
            | AcpPending::NewSession(_)
            | AcpPending::LoadSession(_)
            | AcpPending::SetPrimer(_)
            | AcpPending::PrimerPrompt(_)
            | AcpPending::SetOption(_)
            | AcpPending::Prompt(_)
            | AcpPending::Nothing => MessageMeaning::Ignored,
        }
    }

    /// Returns the answer to a permission request, and whether the permission is granted.
    ///
    /// A refusal selects the option that rejects this one tool, so that the agent can continue. `cancelled` is not used: in
    /// this protocol it means that the turn was cancelled.
    fn answer_permission_request(&self, id: &Value, params: &Value) -> (Vec<u8>, bool) {
        let (allowed, kinds) = match self.greeting.permissions {
            Permissions::Full => (true, ["allow_once", "allow_always"]),
            // The agent does what these levels allow without asking.
            Permissions::Read | Permissions::Edit => (false, ["reject_once", "reject_always"]),
        };
        let options = params.get("options").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let option =
            |kind: &str| options.iter().find(|option| option.get("kind").and_then(Value::as_str) == Some(kind));
        match kinds.iter().find_map(|kind| option(kind)?.get("optionId")) {
            Some(option) => {
                let outcome = json!({"outcome": "selected", "optionId": option});
                (self.rpc.result(id, json!({ "outcome": outcome })), allowed)
            }
            None => (self.rpc.error(id, "permission refused"), false),
        }
    }
}

/// Note for the decoder that a tool call was refused.
fn refusal_note(params: &Value) -> Value {
    let call = params.get("toolCall").cloned().unwrap_or_default();
    json!({"jsonrpc": "2.0", "method": PERMISSION_REFUSED, "params": {"toolCall": call}})
}
