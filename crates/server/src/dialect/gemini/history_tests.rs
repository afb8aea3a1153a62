use serde_json::{Value, json};

use super::*;

fn convert(contents: Value) -> Result<Vec<Message>, ApiError> {
    let mut history = History::default();
    for (index, content) in contents.as_array().unwrap().iter().enumerate() {
        history.append(serde_json::from_value(content.clone()).unwrap(), &format!("contents[{index}]"))?;
    }
    Ok(history.into_messages())
}

#[test]
fn frames_of_a_stream_become_one_message() {
    let messages = convert(json!([
        {"parts": {"text": "one"}},
        {"role": "model", "parts": [{"text": "hm", "thought": true}, {"text": "Let me look."}]},
        {"role": "model", "parts": [{"text": "\n\nThere."}]},
        {"role": "model", "parts": [{"text": "", "thoughtSignature": "x"}]},
        {"role": "user", "parts": [{"text": "two"}, {"text": "three"}]},
    ]))
    .unwrap();
    let expected = [
        Message::new(Role::User, "one"),
        Message::new(Role::Assistant, "Let me look.\n\nThere."),
        Message::new(Role::User, "two\nthree"),
    ];
    assert_eq!(messages, expected);
}

#[test]
fn response_finds_its_call_by_id_or_name() {
    let call = |id: Option<&str>, name: &str| json!({"functionCall": {"id": id, "name": name, "args": {"a": 1}}});
    let response = |id: Option<&str>, name: &str| json!({"function_response": {"id": id, "name": name, "response": {"output": name}}});
    let messages = convert(json!([
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [call(Some("1"), "ls"), call(Some("2"), "pwd"), call(Some("3"), "ls")]},
        {"role": "function", "parts": [response(None, "ls"), response(Some("2"), "pwd"), response(None, "ls")]},
        {"role": "model", "parts": [call(None, "id")]},
        {"role": "user", "parts": [response(None, "id"), {"text": "and?"}]},
    ]))
    .unwrap();
    let ids: Vec<Option<&str>> = messages.iter().map(|message| message.call_id.as_deref()).collect();
    assert_eq!(ids, [None, None, Some("1"), Some("2"), Some("3"), None, None, None]);
    let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
    use Role::{Assistant, Tool, User};
    assert_eq!(roles, [User, Assistant, Tool, Tool, Tool, Assistant, Tool, User]);
    assert_eq!((messages[1].calls.len(), messages[1].calls[0].arguments.as_str()), (3, "{\"a\":1}"));
    assert_eq!((messages[2].text.as_str(), messages[7].text.as_str()), ("{\"output\":\"ls\"}", "and?"));
}

#[test]
fn images_and_text_files_are_taken_in_both_alphabets() {
    let data = |kind: &str, data: &str| json!({"inlineData": {"mimeType": kind, "data": data}});
    let messages = convert(json!([{"role": "user", "parts": [
        data("image/png", "-_-_"),
        {"inline_data": {"mime_type": "image/webp", "data": "+/+/"}},
        data("text/csv", "YSxi"),
        {"inlineData": {"mimeType": "text/plain", "data": "aGk", "displayName": "a.txt"}},
    ]}]))
    .unwrap();
    assert_eq!(messages[0].images[0].bytes, messages[0].images[1].bytes);
    assert_eq!(messages[0].text, "[File: file]\na,b\n[File: a.txt]\nhi");
}

#[test]
fn error_names_the_part() {
    let data = |kind: &str| json!({"inlineData": {"mimeType": kind, "data": "JVBERi0="}});
    for (content, param) in [
        (json!({"role": "robot", "parts": [{"text": "x"}]}), "contents[0].role"),
        (json!({"role": "user"}), "contents[0].parts"),
        (json!({"parts": [{"executableCode": {}}]}), "contents[0].parts[0]"),
        (json!({"parts": [{"text": "x"}, {}]}), "contents[0].parts[1]"),
        (json!({"parts": [{"functionCall": {"name": "f"}}]}), "contents[0].parts[0]"),
        (json!({"role": "model", "parts": [{"functionCall": {}}]}), "contents[0].parts[0].functionCall.name"),
        (json!({"parts": [{"functionResponse": {}}]}), "contents[0].parts[0].functionResponse.name"),
        (json!({"parts": [{"fileData": {"fileUri": "x"}}]}), "contents[0].parts[0].fileData"),
        (json!({"parts": [{"text": "a\u{0}"}]}), "contents[0].parts[0].text"),
        (json!({"parts": [data("application/pdf")]}), "contents[0].parts[0].inlineData.data"),
        (json!({"parts": [data("image/bmp")]}), "contents[0].parts[0].inlineData.data"),
        (json!({"parts": [{"inlineData": {"data": ""}}]}), "contents[0].parts[0].inlineData.mimeType"),
    ] {
        let error = convert(json!([content])).unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(param)), "{content}: {error:?}");
    }
}
