//! The Agent Client Protocol, from the client's side: introduced, a session begun, its model and mode set, then prompts.
//! The agent asks as well: for permission, which it gets as far as the model has it, and for files and terminals, which
//! are not offered.
//!
//! One that does at its first prompt what it could have done at its start is given one ahead, in a session of its own, with
//! a model that cannot answer. Whatever comes of it, the next session is the one that counts.

use serde_json::{Value, json};

use super::exchange::{Greeting, MessageMeaning, PERMISSION_REFUSED};
use super::rpc::{self, Rpc, RpcMessage};
use crate::vocabulary::Permissions;

#[derive(Debug)]
pub(super) struct AcpLive {
    rpc: Rpc,
    greeting: Greeting,
    session: String,
    expects: AcpPending,
}

/// The answer that is awaited, by the number of its request.
#[derive(Debug)]
enum AcpPending {
    Introduction(u64),
    Session(u64),
    /// The model that cannot answer was set.
    Primer(u64),
    /// It did not answer.
    Primed(u64),
    /// A model or a mode that was set.
    Setting(u64),
    Prompt(u64),
    Nothing,
}

impl AcpLive {
    pub(super) fn greet(greeting: Greeting) -> (Self, Vec<u8>) {
        let mut rpc = Rpc::new(true);
        let nothing = json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
        let params = json!({"protocolVersion": 1, "clientCapabilities": nothing, "clientInfo": rpc::client()});
        let (id, words) = rpc.request("initialize", params);
        (Self { rpc, greeting, session: String::new(), expects: AcpPending::Introduction(id) }, words)
    }

    pub(super) fn say(&mut self, prompt: &str) -> Vec<u8> {
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": prompt}]});
        let (id, words) = self.rpc.request("session/prompt", params);
        self.expects = AcpPending::Prompt(id);
        words
    }

    pub(super) fn interrupt(&self) -> Vec<u8> {
        self.rpc.notification("session/cancel", Some(json!({"sessionId": self.session})))
    }

    pub(super) fn hear(&mut self, message: &Value, reply: &mut Vec<u8>) -> MessageMeaning {
        match rpc::read(message) {
            RpcMessage::Result(id, result) => self.answered(id, result, reply),
            RpcMessage::Error(id, error) => self.refused(id, error, reply),
            RpcMessage::Request(id, "session/request_permission", params) => {
                let (words, allowed) = self.permit(id, params);
                reply.extend(words);
                if allowed { MessageMeaning::Said } else { MessageMeaning::SaidWith(refusal_note(params)) }
            }
            RpcMessage::Request(id, method, _) => {
                reply.extend(self.rpc.refusal(id, method));
                MessageMeaning::Nothing
            }
            RpcMessage::Notification("session/update", params) => {
                let ours = params.get("sessionId").and_then(Value::as_str) == Some(self.session.as_str());
                if ours { MessageMeaning::Said } else { MessageMeaning::Nothing }
            }
            RpcMessage::Notification(..) | RpcMessage::Other => MessageMeaning::Nothing,
        }
    }

    fn answered(&mut self, id: u64, result: &Value, reply: &mut Vec<u8>) -> MessageMeaning {
        match self.expects {
            AcpPending::Introduction(expected) if id == expected => self.begin_session(reply),
            AcpPending::Session(expected) if id == expected => {
                let Some(session) = result.get("sessionId").and_then(Value::as_str) else {
                    return MessageMeaning::Broken("it began a session without a name".to_owned());
                };
                session.clone_into(&mut self.session);
                match self.greeting.primer.take() {
                    Some(primer) => self.set_primer(&primer, reply),
                    None => self.set_next(reply),
                }
            }
            AcpPending::Primer(expected) if id == expected => {
                reply.extend(self.say("."));
                self.expects = AcpPending::Primed(self.rpc.last());
                MessageMeaning::Nothing
            }
            AcpPending::Primed(expected) if id == expected => self.begin_session(reply),
            AcpPending::Setting(expected) if id == expected => self.set_next(reply),
            AcpPending::Prompt(expected) if id == expected => {
                self.expects = AcpPending::Nothing;
                MessageMeaning::SaidLast
            }
            AcpPending::Introduction(_)
            | AcpPending::Session(_)
            | AcpPending::Primer(_)
            | AcpPending::Primed(_)
            | AcpPending::Setting(_)
            | AcpPending::Prompt(_)
            | AcpPending::Nothing => MessageMeaning::Nothing,
        }
    }

    fn begin_session(&mut self, reply: &mut Vec<u8>) -> MessageMeaning {
        let params = json!({"cwd": self.greeting.cwd, "mcpServers": []});
        let (id, words) = self.rpc.request("session/new", params);
        self.expects = AcpPending::Session(id);
        reply.extend(words);
        MessageMeaning::Nothing
    }

    fn set_primer(&mut self, primer: &str, reply: &mut Vec<u8>) -> MessageMeaning {
        let (id, words) = self.rpc.request("session/set_model", json!({"sessionId": self.session, "modelId": primer}));
        self.expects = AcpPending::Primer(id);
        reply.extend(words);
        MessageMeaning::Nothing
    }

    /// Sets what is still to be set; ready when nothing is.
    fn set_next(&mut self, reply: &mut Vec<u8>) -> MessageMeaning {
        let (method, name, value) = if let Some(model) = self.greeting.model.take() {
            ("session/set_model", "modelId", model)
        } else if let Some(mode) = self.greeting.mode.take() {
            ("session/set_mode", "modeId", mode)
        } else {
            self.expects = AcpPending::Nothing;
            return MessageMeaning::Ready;
        };
        let (id, words) = self.rpc.request(method, json!({"sessionId": self.session, name: value}));
        self.expects = AcpPending::Setting(id);
        reply.extend(words);
        MessageMeaning::Nothing
    }

    fn refused(&mut self, id: u64, error: &Value, reply: &mut Vec<u8>) -> MessageMeaning {
        match self.expects {
            // Then it is not primed, and its session is as good as new.
            AcpPending::Primer(expected) if id == expected => self.set_next(reply),
            AcpPending::Primed(expected) if id == expected => self.begin_session(reply),
            AcpPending::Introduction(expected) | AcpPending::Session(expected) | AcpPending::Setting(expected)
                if id == expected =>
            {
                MessageMeaning::Broken(rpc::why(error))
            }
            AcpPending::Prompt(expected) if id == expected => {
                self.expects = AcpPending::Nothing;
                MessageMeaning::SaidLast
            }
            AcpPending::Introduction(_)
            | AcpPending::Session(_)
            | AcpPending::Primer(_)
            | AcpPending::Primed(_)
            | AcpPending::Setting(_)
            | AcpPending::Prompt(_)
            | AcpPending::Nothing => MessageMeaning::Nothing,
        }
    }

    /// Answers a request for permission, and says whether it was granted.
    ///
    /// A refusal picks the option that rejects this one tool, so that the agent can go on. `cancelled` is not an answer
    /// here: by the protocol it means that the whole turn is over.
    fn permit(&self, id: &Value, params: &Value) -> (Vec<u8>, bool) {
        let (allowed, kinds) = match self.greeting.permissions {
            Permissions::Full => (true, ["allow_once", "allow_always"]),
            // What this level allows it does without asking.
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
            None => (self.rpc.error(id, "permission is refused"), false),
        }
    }
}

/// Tells a decoder that the tool call was refused.
fn refusal_note(params: &Value) -> Value {
    let call = params.get("toolCall").cloned().unwrap_or_default();
    json!({"jsonrpc": "2.0", "method": PERMISSION_REFUSED, "params": {"toolCall": call}})
}
