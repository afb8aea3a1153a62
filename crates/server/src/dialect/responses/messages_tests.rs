use serde_json::{Value, json};

use super::*;

fn convert(items: Value) -> Result<Vec<Message>, ApiError> {
    let items: Vec<InputItem> = serde_json::from_value(items).unwrap();
    let mut messages = Vec::new();
    append(&mut messages, items, "input").map(|()| messages)
}

fn shown(messages: &[Message]) -> Vec<(Role, &str)> {
    messages.iter().map(|message| (message.role, message.text.as_str())).collect()
}

#[test]
fn items_become_messages() {
    let messages = convert(json!([
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "Weather"}, {"type": "input_text", "text": "in Rome?"},
        ]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
        {"type": "function_call", "call_id": "call_2", "name": "time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "noon"}]},
        {"type": "trunkline:tool_call", "id": "tool_1"},
    ]))
    .unwrap();
    assert_eq!(
        shown(&messages),
        [
            (Role::System, "Be brief."),
            (Role::User, "Weather\nin Rome?"),
            (Role::Assistant, "Let me see."),
            (Role::Tool, "sunny"),
            (Role::Tool, "noon"),
        ]
    );
    let calls: Vec<&str> = messages[2].calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!((calls, messages[3].call_id.as_deref()), (vec!["call_1", "call_2"], Some("call_1")));
}

#[test]
fn neighbouring_items_of_the_assistant_are_one_message() {
    for (second, joined) in [("\n\nFound.", "Looking.\n\nFound."), ("Found.", "Looking.\n\nFound.")] {
        let messages = convert(json!([
            {"role": "assistant", "content": "Looking."},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"role": "assistant", "content": second},
        ]));
        assert_eq!(shown(&messages.unwrap()), [(Role::Assistant, joined)]);
    }
}

#[test]
fn files_become_text_or_images() {
    let messages = convert(json!([{"role": "user", "content": [
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
        {"type": "input_file", "filename": "b.png", "file_data": "data:image/png;base64,aGk="},
    ]}]))
    .unwrap();
    assert_eq!(shown(&messages), [(Role::User, "[File: a.txt]\nhi")]);
    assert_eq!(messages[0].images.len(), 2);
}

#[test]
fn invalid_items_are_refused_with_their_place() {
    for (item, param) in [
        (json!({"type": "surprise"}), "input[0].type"),
        (json!({"type": "computer_call", "id": "x"}), "input[0].type"),
        (json!({"role": "king", "content": "x"}), "input[0].role"),
        (json!({"content": "x"}), "input[0].role"),
        (json!({"role": "user"}), "input[0].content"),
        (json!({"role": "user", "content": "a\u{0}b"}), "input[0].content"),
        (json!({"role": "user", "content": [{"type": "input_text"}]}), "input[0].content[0].text"),
        (json!({"role": "user", "content": [{"type": "input_video"}]}), "input[0].content[0].type"),
        (json!({"role": "user", "content": [{"type": "input_audio"}]}), "input[0].content[0]"),
        (json!({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}), "input[0].content[0]"),
        (
            json!({"role": "user", "content": [{"type": "input_image", "image_url": "http://a/b.png"}]}),
            "input[0].content[0].image_url",
        ),
        (json!({"role": "user", "content": [{"type": "input_file", "file_url": "http://a"}]}), "input[0].content[0]"),
        (
            json!({"role": "user", "content": [{"type": "input_file", "file_data": "data:x;base64,/w=="}]}),
            "input[0].content[0].file_data",
        ),
        (json!({"type": "function_call", "name": "f"}), "input[0].call_id"),
        (json!({"type": "function_call", "call_id": "c"}), "input[0].name"),
        (json!({"type": "function_call_output", "call_id": "c"}), "input[0].output"),
    ] {
        let error = convert(json!([item])).unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(param)), "{item}");
    }
}
