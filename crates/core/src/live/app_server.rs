//! Codex's `app-server`: it is introduced, a thread is begun, and turns are asked of it. Only what is said of the present
//! turn is heard: a resumed thread repeats numbers of its past, and other threads may speak as well.

use serde_json::{Value, json};

use super::exchange::{Greeting, Meaning};
use super::rpc::{self, Message, Rpc};
use crate::vocabulary::Permissions;

#[derive(Debug)]
pub(super) struct AppServer {
    rpc: Rpc,
    greeting: Greeting,
    thread: String,
    /// The turn that is on its way, once it has a name.
    turn: Option<String>,
    expects: Expects,
}

/// The answer that is awaited, by the number of its request.
#[derive(Debug)]
enum Expects {
    Introduction(u64),
    Thread(u64),
    /// An old thread, and what is to be said in it.
    OldThread(u64, String),
    Turn(u64),
    Nothing,
}

impl AppServer {
    pub(super) fn greet(greeting: Greeting) -> (Self, Vec<u8>) {
        let mut rpc = Rpc::new(false);
        let (id, words) = rpc.request("initialize", json!({"clientInfo": rpc::client()}));
        let expects = Expects::Introduction(id);
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
                self.expects = Expects::OldThread(id, prompt.to_owned());
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

    pub(super) fn hear(&mut self, message: &Value, reply: &mut Vec<u8>) -> Meaning {
        match rpc::read(message) {
            Message::Result(id, result) => self.answered(id, result, reply),
            Message::Error(id, error) => self.refused(id, error),
            Message::Request(id, method, _) => {
                reply.extend(self.answer(id, method));
                Meaning::Nothing
            }
            Message::Notification(method, params) => self.notified(method, params),
            Message::Other => Meaning::Nothing,
        }
    }

    fn answered(&mut self, id: u64, result: &Value, reply: &mut Vec<u8>) -> Meaning {
        match std::mem::replace(&mut self.expects, Expects::Nothing) {
            Expects::Introduction(expected) if id == expected => {
                reply.extend(self.rpc.notification("initialized", None));
                let (id, words) = self.rpc.request("thread/start", self.settings());
                self.expects = Expects::Thread(id);
                reply.extend(words);
            }
            Expects::Thread(expected) if id == expected => {
                let Some(thread) = result.pointer("/thread/id").and_then(Value::as_str) else {
                    return Meaning::Broken("it began a thread without a name".to_owned());
                };
                thread.clone_into(&mut self.thread);
                return Meaning::Ready;
            }
            Expects::OldThread(expected, prompt) if id == expected => reply.extend(self.start_turn(&prompt)),
            Expects::Turn(expected) if id == expected => {
                self.turn = result.pointer("/turn/id").and_then(Value::as_str).map(str::to_owned);
            }
            other @ (Expects::Introduction(_)
            | Expects::Thread(_)
            | Expects::OldThread(..)
            | Expects::Turn(_)
            | Expects::Nothing) => self.expects = other,
        }
        Meaning::Nothing
    }

    fn refused(&mut self, id: u64, error: &Value) -> Meaning {
        match self.expects {
            Expects::Introduction(expected) | Expects::Thread(expected) if id == expected => {
                Meaning::Broken(rpc::why(error))
            }
            Expects::OldThread(expected, _) | Expects::Turn(expected) if id == expected => {
                self.expects = Expects::Nothing;
                Meaning::SaidLast
            }
            Expects::Introduction(_)
            | Expects::Thread(_)
            | Expects::OldThread(..)
            | Expects::Turn(_)
            | Expects::Nothing => Meaning::Nothing,
        }
    }

    fn notified(&self, method: &str, params: &Value) -> Meaning {
        let turn = params.get("turnId").or_else(|| params.pointer("/turn/id")).and_then(Value::as_str);
        let thread = params.get("threadId").and_then(Value::as_str);
        if turn.is_none() || turn != self.turn.as_deref() || thread.is_some_and(|thread| thread != self.thread) {
            return Meaning::Nothing;
        }
        if method == "turn/completed" { Meaning::SaidLast } else { Meaning::Said }
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
        self.expects = Expects::Turn(id);
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
