//! Messages of a session in the order that the API requires: each tool call is followed by its result before any other
//! message.
//!
//! Services refuse a history that breaks this rule. An interrupt, a crash or a model that invents ids can all break it, so
//! that messages are only added through methods that preserve it.

use trunkline_core::event::ToolCall;
use trunkline_core::turn::{Message, Role};

/// Result of a call that was stopped, or never started.
pub const INTERRUPTED: &str = "[interrupted]";

/// Messages of a session, always valid except for open calls at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentTranscript {
    messages: Vec<Message>,
    /// Calls of the last assistant message that have no result yet, in order.
    open: Vec<ToolCall>,
}

impl AgentTranscript {
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Calls that have no result yet.
    #[must_use]
    pub fn open(&self) -> &[ToolCall] {
        &self.open
    }

    /// Adds a message from a client's history or a file. A result without a matching call is dropped. Open calls get the
    /// result [`INTERRUPTED`] before any other message.
    pub fn add(&mut self, message: Message) {
        match message.role {
            Role::Tool => {
                let answers = |call: &ToolCall| message.call_id.as_ref().is_none_or(|id| *id == call.id);
                let Some(at) = self.open.iter().position(answers) else { return };
                let call = self.open.remove(at);
                self.messages.push(Message { call_id: Some(call.id), calls: Vec::new(), ..message });
            }
            Role::Assistant => {
                self.answer(&message.text, message.calls);
            }
            Role::System | Role::User => {
                self.close();
                self.messages.push(Message { calls: Vec::new(), call_id: None, ..message });
            }
        }
    }

    /// Adds an answer of the model. Calls with a missing or repeated id get a new one. A malformed call is run as it is, so
    /// that the model reads the error, but stored in a form that services accept.
    pub fn answer(&mut self, text: &str, mut calls: Vec<ToolCall>) {
        self.close();
        // Some services refuse an empty message.
        if text.is_empty() && calls.is_empty() {
            return;
        }
        for at in 0..calls.len() {
            let (before, rest) = calls.split_at_mut(at);
            let taken = |id: &str| id.is_empty() || before.iter().any(|call| call.id == id);
            if taken(&rest[0].id) {
                let fresh = (at..).map(|n| format!("call_{}_{n}", self.messages.len())).find(|id| !taken(id));
                rest[0].id = fresh.unwrap_or_default();
            }
        }
        let stored = calls.iter().map(acceptable).collect();
        self.open = calls;
        self.messages.push(Message { calls: stored, ..Message::new(Role::Assistant, text) });
    }

    /// Adds the result of the next open call.
    pub fn result(&mut self, output: &str) {
        if !self.open.is_empty() {
            let call = self.open.remove(0);
            self.messages.push(Message { call_id: Some(call.id), ..Message::new(Role::Tool, output) });
        }
    }

    /// Gives every open call a result, so that another message can follow.
    pub fn close(&mut self) {
        while !self.open.is_empty() {
            self.result(INTERRUPTED);
        }
    }
}

/// A call in a form that every service accepts: some refuse a history with arguments that are not a JSON object, or with
/// an invalid function name.
fn acceptable(call: &ToolCall) -> ToolCall {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let name: String = call.name.chars().map(|c| if allowed(c) { c } else { '_' }).take(64).collect();
    let object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&call.arguments).is_ok();
    ToolCall {
        id: call.id.clone(),
        name: if name.is_empty() { "unnamed".to_owned() } else { name },
        arguments: if object { call.arguments.clone() } else { "{}".to_owned() },
    }
}

impl Extend<Message> for AgentTranscript {
    fn extend<M: IntoIterator<Item = Message>>(&mut self, messages: M) {
        messages.into_iter().for_each(|message| self.add(message));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "bash".into(), arguments: "{}".into() }
    }

    fn user(text: &str) -> Message {
        Message::new(Role::User, text)
    }

    fn result(id: Option<&str>, text: &str) -> Message {
        Message { call_id: id.map(str::to_owned), ..Message::new(Role::Tool, text) }
    }

    /// The check of a service: each call is followed by exactly one result, with no other message between, and each result
    /// has a call.
    pub(crate) fn is_valid(messages: &[Message]) -> bool {
        let mut open: Vec<&str> = Vec::new();
        for message in messages {
            if message.role == Role::Tool {
                let Some(at) = open.iter().position(|id| Some(*id) == message.call_id.as_deref()) else { return false };
                open.remove(at);
                continue;
            }
            if !open.is_empty() || message.call_id.is_some() {
                return false;
            }
            open = message.calls.iter().map(|call| call.id.as_str()).collect();
            let unique = |id: &&str| !id.is_empty() && open.iter().filter(|other| *other == id).count() == 1;
            if !open.iter().all(unique) {
                return false;
            }
        }
        open.is_empty()
    }

    #[test]
    fn calls_get_a_new_id_when_it_is_missing_or_repeated() {
        let mut transcript = AgentTranscript::default();
        transcript.answer("", vec![call("a"), call("a"), call(""), call("call_0_1")]);
        let ids: Vec<&str> = transcript.open().iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["a", "call_0_1", "call_0_2", "call_0_3"]);
    }

    #[test]
    fn result_is_dropped_when_it_has_no_call() {
        let mut transcript = AgentTranscript::default();
        transcript.extend([result(Some("a"), "no call"), user("go")]);
        transcript.answer("", vec![call("a"), call("b")]);
        transcript.extend([
            result(Some("b"), "two"),
            result(Some("x"), "unknown id"),
            result(None, "one"),
            user("next"),
        ]);
        let texts: Vec<&str> = transcript.messages().iter().map(|message| message.text.as_str()).collect();
        assert_eq!(texts, ["go", "", "two", "one", "next"]);
        assert!(is_valid(transcript.messages()));
    }

    #[test]
    fn open_calls_get_a_result_when_interrupted() {
        let mut transcript = AgentTranscript::default();
        transcript.answer("let me see", vec![call("a"), call("b")]);
        transcript.result("done");
        transcript.add(user("stop"));
        let texts: Vec<&str> = transcript.messages().iter().map(|message| message.text.as_str()).collect();
        assert_eq!(texts, ["let me see", "done", INTERRUPTED, "stop"]);
    }

    #[test]
    fn malformed_call_is_run_unchanged_and_stored_in_accepted_form() {
        for (name, arguments, expected) in [
            ("bash", "{\"command\": 1}", ("bash", "{\"command\": 1}")),
            ("bash", "{\"command\": \"ls", ("bash", "{}")),
            ("bash", "[1]", ("bash", "{}")),
            ("bash", " ", ("bash", "{}")),
            ("", "{}", ("unnamed", "{}")),
            ("my tool.é", "{}", ("my_tool__", "{}")),
        ] {
            let mut transcript = AgentTranscript::default();
            transcript.answer("", vec![ToolCall { id: "a".into(), name: name.into(), arguments: arguments.into() }]);
            let (open, stored) = (&transcript.open()[0], &transcript.messages()[0].calls[0]);
            assert_eq!((open.name.as_str(), open.arguments.as_str()), (name, arguments));
            assert_eq!((stored.name.as_str(), stored.arguments.as_str()), expected);
        }
    }

    fn any_message() -> impl Strategy<Value = Message> {
        let id = prop_oneof![Just(""), Just("a"), Just("b"), Just("call_1_0")];
        let role = prop_oneof![Just(Role::User), Just(Role::System), Just(Role::Assistant), Just(Role::Tool)];
        (role, "[a-z]{0,3}", prop::collection::vec(id.clone(), 0..4), prop::option::of(id)).prop_map(
            |(role, text, ids, call_id)| Message {
                calls: ids.into_iter().map(call).collect(),
                call_id: call_id.map(str::to_owned),
                ..Message::new(role, text)
            },
        )
    }

    proptest! {
        #[test]
        fn transcript_is_valid_whatever_is_added(messages in prop::collection::vec(any_message(), 0..12)) {
            let mut transcript = AgentTranscript::default();
            transcript.extend(messages);
            transcript.close();
            prop_assert!(is_valid(transcript.messages()), "{:?}", transcript.messages());
        }
    }
}
