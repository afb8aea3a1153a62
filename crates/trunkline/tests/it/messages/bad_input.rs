//! Requests that are refused: in Anthropic's shape, and nothing runs.

use serde_json::json;

use super::{ask, body, error, gateway, get, post};
use crate::http::send_raw;

#[test]
fn invalid_request_is_a_400_that_names_the_member() {
    let gateway = gateway("tell ran 1; codex_answers ok").start();
    let messages = vec![json!({"role": "user", "content": "hi"}); 100_001];
    let blocks = vec![json!({"type": "text", "text": "hi"}); 4097];
    for (asked, param) in [
        (json!({"max_tokens": 9, "messages": []}), "model"),
        (json!({"model": "m", "max_tokens": 9}), "messages"),
        (json!({"model": 7}), "model"),
        (body("hi", json!({"messages": {}})), "messages"),
        (body("hi", json!({"messages": ["hi"]})), "messages[0]"),
        (body("hi", json!({"messages": messages})), "messages"),
        (body(7, json!({})), "messages[0].content"),
        (body(blocks, json!({})), "messages[0].content"),
        (body(json!([7]), json!({})), "messages[0].content[0]"),
        (body(json!([{"type": "surprise"}]), json!({})), "messages[0].content[0].type"),
        (body(json!([{"type": "text", "text": 7}]), json!({})), "messages[0].content[0].text"),
        (body("", json!({})), "messages"),
        (body("hi", json!({"stream": "yes"})), "stream"),
        (body("hi", json!({"system": {"type": "text"}})), "system"),
        (body("hi", json!({"tools": [{"description": "nameless"}]})), "tools[0].name"),
        (body("hi", json!({"trunkline": {"colour": "red"}})), "trunkline.colour"),
    ] {
        let reply = post(&gateway, &asked);
        let error = error(&reply, 400);
        let shown: String = asked.to_string().chars().take(200).collect();
        assert_eq!(error["param"], param, "{shown}: {error}");
        assert_eq!(error["type"], "invalid_request_error", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(param) && message.len() < 500, "{error}");
    }
    for bytes in ["", "[]", "{", "\"hi\"", "{\"model\": \"m\"} x"] {
        let head = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{bytes}", bytes.len());
        let address = gateway.address();
        let request = format!("POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{head}");
        error(&send_raw(address, &request).finish(), 400);
    }
    assert!(!gateway.path("seen/ran").exists(), "nothing ran");
}

#[test]
fn unknown_model_is_a_404_and_lists_the_models() {
    let gateway = gateway("codex_answers ok").start();
    for stream in [true, false] {
        let reply = post(&gateway, &body("hi", json!({"model": "unknown", "stream": stream})));
        let error = error(&reply, 404);
        assert_eq!((&error["type"], &error["code"]), (&json!("not_found_error"), &json!("model_not_found")));
        assert!(error["hint"].as_str().unwrap().starts_with("models here: "), "{error}");
    }
}

#[test]
fn key_is_accepted_in_both_headers_and_a_wrong_one_is_refused() {
    let gateway = gateway("codex_answers ok").env("TRUNKLINE_API_KEYS", "right-key-right-key").start();
    for (header, status) in [
        ("x-api-key: right-key-right-key\r\n", 200),
        ("authorization: Bearer right-key-right-key\r\n", 200),
        ("x-api-key: wrong\r\n", 401),
        ("", 401),
    ] {
        let reply = ask(&gateway, "/v1/messages", header, &body("hi", json!({}))).finish();
        assert_eq!(reply.status, status, "{header}: {reply:?}");
        if status == 401 {
            assert_eq!(error(&reply, 401)["type"], "authentication_error");
        }
    }
}

#[test]
fn errors_of_the_server_itself_have_the_shape_too() {
    let gateway = gateway("codex_answers ok").start();
    for path in ["/v1/messages/batches", "/messages/x"] {
        assert_eq!(error(&get(&gateway, path, ""), 404)["type"], "not_found_error", "{path}");
    }
    assert_eq!(error(&get(&gateway, "/v1/messages", ""), 405)["type"], "invalid_request_error");
    assert!(get(&gateway, "/v1/other", "").json().get("type").is_none(), "OpenAI's shape elsewhere");
}
