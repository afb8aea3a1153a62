//! Codex's `app-server`: it is introduced, a thread is begun, and turns are asked of it. Only what is said of the present
//! turn is heard: a resumed thread repeats numbers of its past, and other threads may speak as well.

use serde_json::{Value, json};

use super::exchange::{Greeting, MessageMeaning};
use super::rpc::{self, Rpc, RpcMessage};
use crate::vocabulary::Permissions;

#[derive(Debug)]
pub(super) struct AppServerLive {
    rpc: Rpc,
    greeting: Greeting,
    thread: String,
    /// The turn that is on its way, once it has a name.
    turn: Option<String>,
    expects: AppServerPending,
}

/// The answer that is awaited, by the number of its request.
#[derive(Debug)]
enum AppServerPending {
    Introduction(u64),
    Thread(u64),
    /// An old thread, and what is to be said in it.
    OldThread(u64, String),
    Turn(u64),
    Nothing,
}

impl AppServerLive {
    pub(super) fn greet(greeting: Greeting) -> (Self, Vec<u8>) {
        let mut rpc = Rpc::new(false);
        let (id, words) = rpc.request("initialize", json!({"clientInfo": rpc::client()}));
        let expects = AppServerPending::Introduction(id);
        (Self { rpc, greeting, thread: String::new(), turn: None, expects }, words)
    }

    pub(super) fn say(&mut self, prompt: &str, session: Option<&str>) -> Vec<u8> {
        self.turn = None;
        match session {
            Some(session) if session != self.thread => {
                session.clone_into(&mut self.thread);
                let mut params = self.settings();
                params["threadId"] = session.into();
                let (id, words) = self.rpc.request("thread/resume", params);
                self.expects = AppServerPending::OldThread(id, prompt.to_owned());
                words
            }
            Some(_) | None => self.start_turn(prompt),
        }
    }

    pub(super) fn interrupt(&mut self) -> Vec<u8> {
        let Some(turn) = &self.turn else { return Vec::new() };
        let params = json!({"threadId": self.thread, "turnId": turn});
        self.rpc.request("turn/interrupt", params).1
    }

    pub(super) fn hear(&mut self, message: &Value, reply: &mut Vec<u8>) -> MessageMeaning {
        match rpc::read(message) {
            RpcMessage::Result(id, result) => self.answered(id, result, reply),
            RpcMessage::Error(id, error) => self.refused(id, error),
            RpcMessage::Request(id, method, _) => {
                reply.extend(self.answer(id, method));
                MessageMeaning::Nothing
            }
            RpcMessage::Notification(method, params) => self.notified(method, params),
            RpcMessage::Other => MessageMeaning::Nothing,
        }
    }

    fn answered(&mut self, id: u64, result: &Value, reply: &mut Vec<u8>) -> MessageMeaning {
        match std::mem::replace(&mut self.expects, AppServerPending::Nothing) {
            AppServerPending::Introduction(expected) if id == expected => {
                reply.extend(self.rpc.notification("initialized", None));
                let (id, words) = self.rpc.request("thread/start", self.settings());
                self.expects = AppServerPending::Thread(id);
                reply.extend(words);
            }
            AppServerPending::Thread(expected) if id == expected => {
                let Some(thread) = result.pointer("/thread/id").and_then(Value::as_str) else {
                    return MessageMeaning::Broken("it began a thread without a name".to_owned());
                };
                thread.clone_into(&mut self.thread);
                return MessageMeaning::Ready;
            }
            AppServerPending::OldThread(expected, prompt) if id == expected => reply.extend(self.start_turn(&prompt)),
            AppServerPending::Turn(expected) if id == expected => {
                self.turn = result.pointer("/turn/id").and_then(Value::as_str).map(str::to_owned);
            }
            other @ (AppServerPending::Introduction(_)
            | AppServerPending::Thread(_)
            | AppServerPending::OldThread(..)
            | AppServerPending::Turn(_)
            | AppServerPending::Nothing) => self.expects = other,
        }
        MessageMeaning::Nothing
    }

    fn refused(&mut self, id: u64, error: &Value) -> MessageMeaning {
        match self.expects {
            AppServerPending::Introduction(expected) | AppServerPending::Thread(expected) if id == expected => {
                MessageMeaning::Broken(rpc::why(error))
            }
            AppServerPending::OldThread(expected, _) | AppServerPending::Turn(expected) if id == expected => {
                self.expects = AppServerPending::Nothing;
                MessageMeaning::SaidLast
            }
            AppServerPending::Introduction(_)
            | AppServerPending::Thread(_)
            | AppServerPending::OldThread(..)
            | AppServerPending::Turn(_)
            | AppServerPending::Nothing => MessageMeaning::Nothing,
        }
    }

    fn notified(&self, method: &str, params: &Value) -> MessageMeaning {
        let turn = params.get("turnId").or_else(|| params.pointer("/turn/id")).and_then(Value::as_str);
        let thread = params.get("threadId").and_then(Value::as_str);
        if turn.is_none() || turn != self.turn.as_deref() || thread.is_some_and(|thread| thread != self.thread) {
            return MessageMeaning::Nothing;
        }
        if method == "turn/completed" { MessageMeaning::SaidLast } else { MessageMeaning::Said }
    }

    /// It is told never to ask; should it do so, the answer is what it was told it may do.
    fn answer(&self, id: &Value, method: &str) -> Vec<u8> {
        if !method.ends_with("/requestApproval") {
            return self.rpc.refusal(id, method);
        }
        let decision = match self.greeting.permissions {
            Permissions::Full => "accept",
            Permissions::Read | Permissions::Edit => "decline",
        };
        self.rpc.result(id, json!({"decision": decision}))
    }

    fn start_turn(&mut self, prompt: &str) -> Vec<u8> {
        let params = json!({"threadId": self.thread, "input": [{"type": "text", "text": prompt}]});
        let (id, words) = self.rpc.request("turn/start", params);
        self.expects = AppServerPending::Turn(id);
        words
    }

    fn settings(&self) -> Value {
        let Greeting { cwd, model, mode, system, .. } = &self.greeting;
        let mut settings = json!({"cwd": cwd, "approvalPolicy": "never"});
        for (name, value) in [("model", model), ("sandbox", mode), ("developerInstructions", system)] {
            if let Some(value) = value {
                settings[name] = value.as_str().into();
            }
        }
        settings
    }
}
