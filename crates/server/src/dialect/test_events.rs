//! Arbitrary runs, for tests of encoders.

use proptest::prelude::*;
use serde_json::json;
use trunkline_core::event::{Answer, Event, Finish, ToolCall, Usage};
use trunkline_core::failure::{Category, Failure};

pub(crate) const RUN: &str = "01a1e9c4-2a49-76a6-bf90-9dbc3a2f6e01";

pub(crate) fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

pub(crate) fn thinking(delta: &str) -> Event {
    Event::Thinking { delta: delta.into() }
}

pub(crate) fn tool() -> Event {
    Event::ToolStarted { id: "t".into(), name: "bash".into(), input: json!({"command": "ls"}) }
}

/// A piece of the first call for the client. The first piece has the id and the name.
pub(crate) fn call_piece(id: Option<&str>, arguments: &str) -> Event {
    let name = id.map(|_| "weather".to_owned());
    Event::ToolCall { index: 0, id: id.map(str::to_owned), name, arguments: arguments.to_owned() }
}

pub(crate) fn finished(content: &str) -> Event {
    let usage = Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 1, estimated: false };
    Event::Finished(Answer::new(content, usage, Finish::Stop))
}

fn event() -> impl Strategy<Value = Event> {
    let words = prop_oneof!["[a-z \n]{0,6}", Just("\u{2028}\"\\é".to_owned()), Just(String::new())];
    let id = prop_oneof![Just("t1".to_owned()), Just("t2".to_owned())];
    prop_oneof![
        4 => words.clone().prop_map(|delta| Event::Text { delta }),
        2 => words.clone().prop_map(|delta| Event::Thinking { delta }),
        1 => (id.clone(), words.clone()).prop_map(|(id, name)| Event::ToolStarted { id, name, input: json!({"a": 1}) }),
        1 => (id, words.clone(), any::<bool>()).prop_map(|(id, output, ok)| Event::ToolFinished { id, output, ok }),
        2 => (0..3_u32, proptest::option::of("[a-z]{1,3}"), arguments()).prop_map(|(index, id, arguments)| {
            Event::ToolCall { index, name: id.clone(), id, arguments }
        }),
        1 => words.clone().prop_map(|message| Event::Notice { message }),
        1 => words.prop_map(|line| Event::Unknown { line }),
        1 => Just(Event::Started { session: None, model: None }),
    ]
}

fn arguments() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just("{}".to_owned()), Just("{\"a\": 1}".to_owned()), "[a-z{\"]{1,3}"]
}

fn end() -> impl Strategy<Value = Event> {
    let finish = prop_oneof![Just(Finish::Stop), Just(Finish::Length), Just(Finish::ToolCalls)];
    let call = arguments().prop_map(|arguments| ToolCall { id: String::new(), name: "f".into(), arguments });
    let calls = proptest::collection::vec(call, 0..3);
    let category = prop_oneof![Just(Category::Server), Just(Category::Cancelled), Just(Category::Quota)];
    prop_oneof![
        3 => ("[a-z ]{0,8}", finish, calls).prop_map(|(content, finish, calls)| {
            Event::Finished(Answer { calls, ..Answer::new(content, Usage::default(), finish) })
        }),
        1 => category.prop_map(|category| Event::Failed(Failure::new(category, "no"))),
    ]
}

/// The events of any run, in order.
pub(crate) fn run() -> impl Strategy<Value = Vec<Event>> {
    (proptest::collection::vec(event(), 0..24), end()).prop_map(|(mut events, end)| {
        events.push(end);
        events
    })
}
