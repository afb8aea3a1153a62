//! Client of Claude Code's `--input-format stream-json`: control requests and responses between the messages of its usual
//! output. The response to `initialize` means that it is ready.

use serde_json::{Value, json};

use super::exchange::{Greeting, MessageMeaning, to_line};
use crate::vocabulary::Permissions;

/// Ids of our control requests.
const GREETING: &str = "greeting";
const INTERRUPT: &str = "interrupt";

#[derive(Debug)]
pub(super) struct ClaudeLive {
    permissions: Permissions,
}

impl ClaudeLive {
    pub(super) fn greet(greeting: Greeting) -> (Self, Vec<u8>) {
        let mut request = json!({"subtype": "initialize"});
        if let Some(system) = greeting.system {
            request["appendSystemPrompt"] = system.into();
        }
        (Self { permissions: greeting.permissions }, control(GREETING, request))
    }

    pub(super) fn send_prompt(&self, prompt: &str) -> Vec<u8> {
        // With `client_composed`, a slash or an `@` in the prompt is plain text.
        to_line(&json!({
            "type": "user",
            "message": {"role": "user", "content": prompt},
            "client_composed": true,
        }))
    }

    pub(super) fn interrupt(&self) -> Vec<u8> {
        control(INTERRUPT, json!({"subtype": "interrupt"}))
    }

    pub(super) fn receive(&self, message: &Value, reply: &mut Vec<u8>) -> MessageMeaning {
        let field = |name: &str| message.get(name).and_then(Value::as_str);
        match field("type") {
            Some("control_response") => on_response(message.get("response").unwrap_or(&Value::Null)),
            Some("control_request") => {
                reply.extend(self.answer_request(message));
                MessageMeaning::Ignored
            }
            Some("control_cancel_request" | "command_lifecycle" | "conversation_reset" | "keep_alive") => {
                MessageMeaning::Ignored
            }
            Some("result") => MessageMeaning::EndsTurn,
            Some(_) | None => MessageMeaning::ForTurn,
        }
    }

    /// Answers a control request: whether a tool may be used, or something that we do not support.
    fn answer_request(&self, message: &Value) -> Vec<u8> {
        let id = message.get("request_id").unwrap_or(&Value::Null);
        let request = message.get("request").unwrap_or(&Value::Null);
        let response = match (request.get("subtype").and_then(Value::as_str), self.permissions) {
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
    if field("request_id") != Some(GREETING) {
        return MessageMeaning::Ignored;
    }
    match field("subtype") {
        Some("success") => MessageMeaning::Ready,
        _ => MessageMeaning::Broken(field("error").unwrap_or("initialize was refused").to_owned()),
    }
}

fn control(id: &str, request: Value) -> Vec<u8> {
    to_line(&json!({"type": "control_request", "request_id": id, "request": request}))
}
