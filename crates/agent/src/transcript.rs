//! The conversation as the API wants it: every call is followed by its result before anything else is said.
//!
//! A service refuses a history in which that does not hold, and an interrupt, a crash or a model that makes up ids can
//! all break it. So nothing is added here but through methods that keep it.

use trunkline_core::event::Call;
use trunkline_core::turn::{Message, Role};

/// The result of a call that was stopped, or never begun.
pub const INTERRUPTED: &str = "[interrupted]";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    messages: Vec<Message>,
    /// Calls of the last assistant message that have no result yet, in order.
    open: Vec<Call>,
}

impl Transcript {
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The calls that wait for their results.
    #[must_use]
    pub fn open(&self) -> &[Call] {
        &self.open
    }

    /// Adds a message from elsewhere: a client's history, a file. What cannot stand where it is said is left out: a
    /// result nobody asked for. Calls that have no result by then get one that says so.
    pub fn add(&mut self, message: Message) {
        match message.role {
            Role::Tool => {
                let answers = |call: &Call| message.call_id.as_ref().is_none_or(|id| *id == call.id);
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

    /// The model has spoken. Its calls get ids where it has given none, or one twice. What it got wrong is run as it is, so
    /// that it can be told, but kept as a service takes it.
    pub fn answer(&mut self, text: &str, mut calls: Vec<Call>) {
        self.close();
        // An empty message is refused by some services, and says nothing to any.
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
        let told = calls.iter().map(acceptable).collect();
        self.open = calls;
        self.messages.push(Message { calls: told, ..Message::new(Role::Assistant, text) });
    }

    /// The result of the call that is next.
    pub fn result(&mut self, output: &str) {
        if !self.open.is_empty() {
            let call = self.open.remove(0);
            self.messages.push(Message { call_id: Some(call.id), ..Message::new(Role::Tool, output) });
        }
    }

    /// Gives every call that still waits a result, so that something else can be said.
    pub fn close(&mut self) {
        while !self.open.is_empty() {
            self.result(INTERRUPTED);
        }
    }
}

/// A call as every service takes it back: some refuse a history with arguments that are no JSON object, or with a name
/// that no function can have.
fn acceptable(call: &Call) -> Call {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let name: String = call.name.chars().map(|c| if allowed(c) { c } else { '_' }).take(64).collect();
    let object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&call.arguments).is_ok();
    Call {
        id: call.id.clone(),
        name: if name.is_empty() { "unnamed".to_owned() } else { name },
        arguments: if object { call.arguments.clone() } else { "{}".to_owned() },
    }
}

impl Extend<Message> for Transcript {
    fn extend<M: IntoIterator<Item = Message>>(&mut self, messages: M) {
        messages.into_iter().for_each(|message| self.add(message));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn call(id: &str) -> Call {
        Call { id: id.into(), name: "bash".into(), arguments: "{}".into() }
    }

    fn user(text: &str) -> Message {
        Message::new(Role::User, text)
    }

    fn result(id: Option<&str>, text: &str) -> Message {
        Message { call_id: id.map(str::to_owned), ..Message::new(Role::Tool, text) }
    }

    /// What a service checks: after calls come their results, each once and nothing between, and no result comes alone.
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
    fn calls_get_an_id_of_their_own() {
        let mut transcript = Transcript::default();
        transcript.answer("", vec![call("a"), call("a"), call(""), call("call_0_1")]);
        let ids: Vec<&str> = transcript.open().iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["a", "call_0_1", "call_0_2", "call_0_3"]);
    }

    #[test]
    fn a_result_belongs_to_a_call() {
        let mut transcript = Transcript::default();
        transcript.extend([result(Some("a"), "nobody asked"), user("go")]);
        transcript.answer("", vec![call("a"), call("b")]);
        transcript.extend([result(Some("b"), "two"), result(Some("x"), "who?"), result(None, "one"), user("next")]);
        let said: Vec<&str> = transcript.messages().iter().map(|message| message.text.as_str()).collect();
        assert_eq!(said, ["go", "", "two", "one", "next"]);
        assert!(is_valid(transcript.messages()));
    }

    #[test]
    fn what_was_interrupted_has_a_result_that_says_so() {
        let mut transcript = Transcript::default();
        transcript.answer("let me see", vec![call("a"), call("b")]);
        transcript.result("done");
        transcript.add(user("stop"));
        let said: Vec<&str> = transcript.messages().iter().map(|message| message.text.as_str()).collect();
        assert_eq!(said, ["let me see", "done", INTERRUPTED, "stop"]);
    }

    #[test]
    fn a_call_is_run_as_it_came_and_kept_as_a_service_takes_it() {
        for (name, arguments, kept) in [
            ("bash", "{\"command\": 1}", ("bash", "{\"command\": 1}")),
            ("bash", "{\"command\": \"ls", ("bash", "{}")),
            ("bash", "[1]", ("bash", "{}")),
            ("bash", " ", ("bash", "{}")),
            ("", "{}", ("unnamed", "{}")),
            ("my tool.é", "{}", ("my_tool__", "{}")),
        ] {
            let mut transcript = Transcript::default();
            transcript.answer("", vec![Call { id: "a".into(), name: name.into(), arguments: arguments.into() }]);
            let (open, told) = (&transcript.open()[0], &transcript.messages()[0].calls[0]);
            assert_eq!((open.name.as_str(), open.arguments.as_str()), (name, arguments));
            assert_eq!((told.name.as_str(), told.arguments.as_str()), kept);
        }
    }

    fn anything() -> impl Strategy<Value = Message> {
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
        fn whatever_is_added_it_stays_valid(messages in prop::collection::vec(anything(), 0..12)) {
            let mut transcript = Transcript::default();
            transcript.extend(messages);
            transcript.close();
            prop_assert!(is_valid(transcript.messages()), "{:?}", transcript.messages());
        }
    }
}
