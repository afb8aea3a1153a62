use serde_json::{Value, json};

use super::*;

fn convert(message: Value) -> Result<Vec<Message>, ApiError> {
    let mut messages = Vec::new();
    append(&mut messages, serde_json::from_value(message).unwrap(), "messages[0]")?;
    Ok(messages)
}

fn user(content: Value) -> Result<Vec<Message>, ApiError> {
    convert(json!({"role": "user", "content": content}))
}

#[test]
fn results_of_tools_come_before_the_text_of_their_message() {
    let messages = user(json!([
        {"type": "text", "text": "And now?"},
        {"type": "tool_result", "tool_use_id": "a", "content": "24 C"},
        {"type": "tool_result", "tool_use_id": "b", "is_error": true, "content": [{"type": "text", "text": "no"}]},
        {"type": "tool_result", "tool_use_id": "c"},
        {"type": "text", "text": "Again.", "cache_control": {"type": "ephemeral"}},
    ]))
    .unwrap();
    let result = |id: &str, text: &str| Message { call_id: Some(id.into()), ..Message::new(Role::Tool, text) };
    let expected = vec![
        result("a", "24 C"),
        result("b", "Error: no"),
        result("c", ""),
        Message::new(Role::User, "And now?\nAgain."),
    ];
    assert_eq!(messages, expected);
    let only = user(json!([{"type": "tool_result", "tool_use_id": "a", "content": "x"}])).unwrap();
    assert_eq!(only, [result("a", "x")]);
}

#[test]
fn message_of_the_assistant_is_as_it_was_streamed() {
    let messages = convert(json!({"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "Let me look."},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "\n\nThere."},
        {"type": "text", "text": "Done."},
        {"type": "tool_use", "id": "t", "name": "ls", "input": {"a": 1}},
        {"type": "tool_use", "id": "u", "name": "pwd"},
    ]}))
    .unwrap();
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let expected = Message {
        calls: vec![call("t", "ls", "{\"a\":1}"), call("u", "pwd", "{}")],
        ..Message::new(Role::Assistant, "Let me look.\n\nThere.\n\nDone.")
    };
    assert_eq!(messages, [expected]);
}

#[test]
fn images_and_text_documents_are_taken() {
    let messages = user(json!([
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
        {"type": "image", "source": {"type": "url", "url": "data:image/gif;base64,R0lG"}},
        {"type": "document", "title": "a.txt", "source": {"type": "text", "media_type": "text/plain", "data": "one"}},
        {"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "dHdv"}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "three"}]}},
        {"type": "document", "source": {"type": "content", "content": "four"}},
    ]))
    .unwrap();
    let extensions: Vec<&str> = messages[0].images.iter().map(|image| image.extension).collect();
    assert_eq!(extensions, ["png", "gif"]);
    let expected = "[File: a.txt]\none\n[File: document]\ntwo\n[File: document]\nthree\n[File: document]\nfour";
    assert_eq!(messages[0].text, expected);
}

#[test]
fn system_prompt_is_text_without_the_accounting_of_claude_code() {
    let system = |content: Value| system(serde_json::from_value(content).unwrap());
    let block = |text: &str| json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
    for (content, expected) in [
        (json!("Be brief."), Some("Be brief.")),
        (json!([block("Be brief."), block("Be kind.")]), Some("Be brief.\nBe kind.")),
        (json!([block("x-anthropic-billing-header: cch=1;"), block("Be kind.")]), Some("Be kind.")),
        (json!([]), None),
        (json!(""), None),
    ] {
        let expected = expected.map(|text| Message::new(Role::System, text));
        assert_eq!(system(content.clone()).unwrap(), expected, "{content}");
    }
    assert_eq!(system(json!([{"type": "image"}])).unwrap_err().param.as_deref(), Some("system[0].type"));
}

#[test]
fn error_names_the_block() {
    let mut deep = json!([{"type": "text", "text": "x"}]);
    for _ in 0..8 {
        deep = json!([{"type": "document", "source": {"type": "content", "content": deep}}]);
    }
    for (content, param) in [
        (json!([{"type": "surprise"}]), "messages[0].content[0].type"),
        (json!([{"type": "search_result", "source": "http://x", "content": []}]), "messages[0].content[0].type"),
        (json!([{"type": "text"}]), "messages[0].content[0].text"),
        (json!([{"type": "text", "text": "a\u{0}"}]), "messages[0].content[0].text"),
        (json!("a\u{0}"), "messages[0].content"),
        (json!([{"type": "image"}]), "messages[0].content[0].source"),
        (json!([{"type": "image", "source": "x"}]), "messages[0].content[0].source"),
        (json!([{"type": "image", "source": {"type": "file", "file_id": "f"}}]), "messages[0].content[0].source.type"),
        (
            json!([{"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]),
            "messages[0].content[0].source.url",
        ),
        (
            json!([{"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "AA=="}}]),
            "messages[0].content[0].source.data",
        ),
        (
            json!([{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}]),
            "messages[0].content[0]",
        ),
        (json!([{"type": "document", "source": {"type": "url"}}]), "messages[0].content[0].source.type"),
        (json!([{"type": "tool_result"}]), "messages[0].content[0].tool_use_id"),
        (json!([{"type": "tool_result", "tool_use_id": "a", "content": 7}]), "messages[0].content[0].content"),
        (
            json!([{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference"}]}]),
            "messages[0].content[0].content[0].type",
        ),
    ] {
        let error = user(content.clone()).unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(param)), "{content}: {error:?}");
    }
    assert_eq!(user(deep).unwrap_err().status, 400);
    for message in [json!({"role": "assistant", "content": [{"type": "image"}]}), json!({"role": "user"})] {
        assert_eq!(convert(message).unwrap_err().status, 400);
    }
    let role = convert(json!({"role": "robot", "content": "x"})).unwrap_err();
    assert_eq!(role.param.as_deref(), Some("messages[0].role"));
}
