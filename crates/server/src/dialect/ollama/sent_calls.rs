//! Ids of the calls that were sent to clients. Ollama's messages have no ids of calls: some clients drop ours, others put their own in
//! their place. A call that comes back is found by its place: the client, the conversation before it, its tool and its arguments.
//!
//! Two equal conversations of one client have the same places. The later one wins: the results are the same for both.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use trunkline_core::event::ToolCall;
use trunkline_core::turn::{ClientId, Message, Role};

/// Maximum number of calls. The oldest are forgotten first.
const MAX_CALLS: usize = 4096;

/// Digest of the place of a call.
type CallPlace = [u8; 32];

/// Calls that were sent, to all clients.
#[derive(Debug, Default, Clone)]
pub(crate) struct SentCalls(Arc<Mutex<CallIds>>);

#[derive(Debug, Default)]
struct CallIds {
    by_place: HashMap<CallPlace, String>,
    /// Places in the order in which their calls were sent.
    order: VecDeque<CallPlace>,
}

/// The calls of one conversation, up to its last message.
#[derive(Debug, Clone)]
pub(crate) struct ConversationCalls {
    sent: SentCalls,
    conversation: blake3::Hasher,
}

impl SentCalls {
    pub(super) fn of(&self, client: &ClientId) -> ConversationCalls {
        let mut conversation = blake3::Hasher::new();
        add(&mut conversation, client.as_str());
        ConversationCalls { sent: self.clone(), conversation }
    }

    fn lock(&self) -> MutexGuard<'_, CallIds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConversationCalls {
    /// Continues the conversation with a message. The texts of the model do not count: clients may shorten them.
    pub(super) fn follow(&mut self, message: &Message) {
        if message.role != Role::Assistant {
            add(&mut self.conversation, &message.text);
        }
        for call in &message.calls {
            add_call(&mut self.conversation, call);
        }
    }

    /// Our id of the call at this position of the next message.
    pub(super) fn id(&self, position: usize, call: &ToolCall) -> Option<String> {
        self.sent.lock().by_place.get(&self.place(position, call)).cloned()
    }

    /// Remembers the calls of the next message.
    pub(super) fn remember(&self, calls: &[ToolCall]) {
        let mut ids = self.sent.lock();
        for (position, call) in calls.iter().enumerate() {
            let place = self.place(position, call);
            if ids.by_place.insert(place, call.id.clone()).is_none() {
                ids.order.push_back(place);
            }
        }
        while ids.order.len() > MAX_CALLS {
            if let Some(oldest) = ids.order.pop_front() {
                ids.by_place.remove(&oldest);
            }
        }
    }

    fn place(&self, position: usize, call: &ToolCall) -> CallPlace {
        let mut place = self.conversation.clone();
        add(&mut place, &position.to_string());
        add_call(&mut place, call);
        *place.finalize().as_bytes()
    }
}

fn add(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
}

/// Adds a call without its id. The arguments count as a value: clients write them anew.
fn add_call(hasher: &mut blake3::Hasher, call: &ToolCall) {
    add(hasher, &call.name);
    let arguments = serde_json::from_str::<Value>(&call.arguments).map(sorted);
    add(hasher, &arguments.map_or_else(|_| call.arguments.clone(), |arguments| arguments.to_string()));
}

/// The value with the members of its objects in order, whatever order the client has written.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<(String, Value)> =
                members.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, arguments: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: "f".to_owned(), arguments: arguments.to_owned() }
    }

    fn conversation(sent: &SentCalls, client: &str, texts: &[&str]) -> ConversationCalls {
        let mut calls = sent.of(&ClientId::named(client));
        texts.iter().for_each(|text| calls.follow(&Message::new(Role::User, (*text).to_owned())));
        calls
    }

    #[test]
    fn id_is_found_by_client_conversation_position_and_arguments() {
        let sent = SentCalls::default();
        conversation(&sent, "a", &["hi"]).remember(&[call("one", r#"{"x":1,"y":{"b":2,"a":[]}}"#), call("two", "{}")]);
        let written_anew = call("", r#"{ "y": {"a": [], "b": 2}, "x": 1 }"#);
        for (client, texts, position, call, expected) in [
            ("a", &["hi"][..], 0, &written_anew, Some("one")),
            ("a", &["hi"], 1, &call("theirs", "{}"), Some("two")),
            ("a", &["hi"], 1, &written_anew, None),
            ("a", &["hi", "there"], 0, &written_anew, None),
            ("b", &["hi"], 0, &written_anew, None),
        ] {
            let found = conversation(&sent, client, texts).id(position, call);
            assert_eq!(found.as_deref(), expected, "{client} {texts:?} {position} {call:?}");
        }
    }

    #[test]
    fn text_of_the_model_does_not_count_and_its_calls_do() {
        let sent = SentCalls::default();
        let after = |text: &str, earlier: &ToolCall| {
            let mut calls = conversation(&sent, "a", &["hi"]);
            calls.follow(&Message { calls: vec![earlier.clone()], ..Message::new(Role::Assistant, text.to_owned()) });
            calls
        };
        after("I look.", &call("one", "{}")).remember(&[call("two", "{}")]);
        assert_eq!(after("", &call("x", "{}")).id(0, &call("", "{}")).as_deref(), Some("two"));
        assert_eq!(after("", &call("x", r#"{"x":1}"#)).id(0, &call("", "{}")), None);
    }

    #[test]
    fn oldest_calls_are_forgotten_first() {
        let sent = SentCalls::default();
        let calls = conversation(&sent, "a", &["hi"]);
        let many: Vec<ToolCall> = (0..=MAX_CALLS).map(|number| call(&number.to_string(), "{}")).collect();
        calls.remember(&many);
        assert_eq!(calls.id(0, &call("", "{}")), None);
        assert_eq!(calls.id(1, &call("", "{}")).as_deref(), Some("1"));
        assert_eq!(sent.lock().by_place.len(), MAX_CALLS);
    }
}
