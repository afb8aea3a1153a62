use super::*;
use serde_json::{Value, json};
use trunkline_core::turn::Options;

use crate::chat::ChatRequest;

fn sent(turn: &Turn, system_prompt: Option<&str>, model: Option<&str>) -> Value {
    serde_json::from_slice(&request(turn, system_prompt, model)).unwrap()
}

fn turn(messages: Vec<Message>) -> Turn {
    Turn { model: "ours".into(), messages, ..Turn::default() }
}

#[test]
fn body_has_only_the_options_that_are_set() {
    let turn = turn(vec![Message::new(Role::User, "hi")]);
    let message = json!({"role": "user", "content": "hi"});
    let streamed = json!({"messages": [message], "stream": true, "stream_options": {"include_usage": true}});
    assert_eq!(sent(&turn, None, None), streamed);
    let whole = Turn { shown: AnswerTiming::AtTheEnd, ..turn };
    assert_eq!(
        sent(&whole, Some(""), Some("theirs")),
        json!({"model": "theirs", "messages": [message], "stream": false})
    );
}

#[test]
fn options_are_sent_even_when_zero_or_false() {
    let body = json!({
        "model": "ours", "messages": [{"role": "user", "content": "hi"}], "stream": false,
        "max_tokens": 0, "temperature": 0.0, "top_p": 1e-3,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": "auto", "parallel_tool_calls": false, "seed": 0, "stop": ["a", "b"],
        "response_format": {"type": "json_object"}, "metadata": {"task": "abc"},
    });
    let turn = ChatRequest::parse(body.to_string().as_bytes()).unwrap().into_turn().unwrap();
    assert_eq!(sent(&turn, None, Some("ours")), body);
    let none = Turn { options: Options::default(), ..turn };
    assert_eq!(sent(&none, None, None).as_object().unwrap().len(), 2, "messages and stream");
}

#[test]
fn history_with_calls_and_images_is_serialised() {
    let call = ToolCall { id: "c1".into(), name: "add".into(), arguments: "{\"a\":2}".into() };
    let image = Image { extension: "png", bytes: vec![1, 2, 3] };
    let turn = turn(vec![
        Message::new(Role::System, "be terse"),
        Message { images: vec![image.clone()], ..Message::new(Role::User, "what is this?") },
        Message { images: vec![image], ..Message::new(Role::User, "") },
        Message { calls: vec![call.clone()], ..Message::new(Role::Assistant, "") },
        Message { call_id: Some("c1".into()), ..Message::new(Role::Tool, "4") },
        Message { calls: vec![call], ..Message::new(Role::Assistant, "once more") },
        Message::new(Role::Assistant, ""),
    ]);
    let image_part = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}});
    let calls = json!([{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":2}"}}]);
    let expected = json!([
        {"role": "system", "content": "be terse"},
        {"role": "user", "content": [{"type": "text", "text": "what is this?"}, image_part]},
        {"role": "user", "content": [image_part]},
        {"role": "assistant", "content": null, "tool_calls": calls},
        {"role": "tool", "content": "4", "tool_call_id": "c1"},
        {"role": "assistant", "content": "once more", "tool_calls": calls},
        {"role": "assistant", "content": ""},
    ]);
    assert_eq!(sent(&turn, None, None)["messages"], expected);
}

#[test]
fn system_prompt_comes_before_the_clients_messages() {
    for (messages, expected) in [
        (vec![Message::new(Role::User, "hi")], json!([["system", "ours"], ["user", "hi"]])),
        (
            vec![Message::new(Role::System, "theirs"), Message::new(Role::User, "hi")],
            json!([["system", "ours\n\ntheirs"], ["user", "hi"]]),
        ),
        (
            vec![Message::new(Role::User, "hi"), Message::new(Role::System, "later")],
            json!([["system", "ours"], ["user", "hi"], ["system", "later"]]),
        ),
    ] {
        let body = sent(&turn(messages), Some("ours"), None);
        let messages = body["messages"].as_array().unwrap();
        let sent: Vec<Value> = messages.iter().map(|message| json!([message["role"], message["content"]])).collect();
        assert_eq!(Value::from(sent), expected);
    }
}

#[test]
fn calls_get_a_generated_id_when_they_have_none() {
    let old = |name: &str| ToolCall { id: String::new(), name: name.into(), arguments: "{}".into() };
    let body = sent(
        &turn(vec![
            Message { calls: vec![old("a"), old("b")], ..Message::new(Role::Assistant, "") },
            Message::new(Role::Tool, "1"),
            Message::new(Role::Tool, "2"),
            Message::new(Role::Tool, "of nothing"),
        ]),
        None,
        None,
    );
    let messages = &body["messages"];
    assert_eq!(
        (&messages[0]["tool_calls"][0]["id"], &messages[1]["tool_call_id"]),
        (&json!("call_0_0"), &json!("call_0_0"))
    );
    assert_eq!(
        (&messages[0]["tool_calls"][1]["id"], &messages[2]["tool_call_id"]),
        (&json!("call_0_1"), &json!("call_0_1"))
    );
    assert_eq!(messages[3].get("tool_call_id"), None);
}

proptest::proptest! {
    #[test]
    fn serialised_turn_parses_back_to_the_same_turn(
        texts in proptest::collection::vec("[^\0]{1,30}", 1..5),
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 1..40),
    ) {
        let mut messages: Vec<Message> = texts.iter().map(|text| Message::new(Role::User, text)).collect();
        messages[0].images.push(Image { extension: "gif", bytes });
        messages.push(Message::new(Role::User, "and?"));
        let turn = Turn { shown: AnswerTiming::AtTheEnd, ..turn(messages) };
        let read = ChatRequest::parse(&request(&turn, None, Some("ours"))).unwrap().into_turn().unwrap();
        assert_eq!(read, turn);
    }
}

#[test]
fn deprecated_functions_are_sent_in_their_own_format() {
    let body = json!({
        "model": "ours", "stream": false, "logprobs": true, "top_logprobs": 2, "store": false,
        "functions": [{"name": "add", "parameters": {"type": "object"}}], "function_call": {"name": "add"},
        "messages": [
            {"role": "user", "name": "bob", "content": "2 + 2?"},
            {"role": "assistant", "content": null, "function_call": {"name": "add", "arguments": "{}"}},
            {"role": "function", "name": "add", "content": "4"},
        ],
    });
    let turn = ChatRequest::parse(body.to_string().as_bytes()).unwrap().into_turn().unwrap();
    assert_eq!(sent(&turn, None, Some("ours")), body);
    // Without `functions`, servers get the format that they all know.
    let tools = Turn { options: Options::default(), ..turn };
    let messages = sent(&tools, None, None)["messages"].take();
    assert_eq!((&messages[1]["tool_calls"][0]["id"], &messages[2]["role"]), (&json!("call_1_0"), &json!("tool")));
    assert_eq!((&messages[2]["tool_call_id"], &messages[0]["name"]), (&json!("call_1_0"), &json!("bob")));
}
