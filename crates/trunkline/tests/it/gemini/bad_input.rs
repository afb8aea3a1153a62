//! Requests that are refused: in Google's shape, and nothing runs.

use serde_json::json;

use super::{COUNT, EVENTS, WHOLE, ask, body, error, gateway, post};
use crate::http::send_raw;

#[test]
fn invalid_request_is_a_400_that_names_the_member() {
    let gateway = gateway("tell ran 1; codex_answers ok").start();
    let many_parts = json!([{"parts": vec![json!({"text": "hi"}); 4097]}]);
    let many_contents = vec![json!({"parts": [{"text": "hi"}]}); 100_001];
    for (asked, field) in [
        (json!({}), "contents"),
        (json!({"contents": "hi"}), "contents"),
        (json!({"contents": ["hi"]}), "contents[0]"),
        (json!({"contents": [{"parts": "hi"}]}), "contents[0].parts"),
        (json!({"contents": many_parts}), "contents[0].parts"),
        (json!({"contents": many_contents}), "contents"),
        (json!({"contents": [{"parts": [{"text": ["hi"]}]}]}), "contents[0].parts[0].text"),
        (json!({"contents": [{"parts": [{"surprise": 1}]}]}), "contents[0].parts[0]"),
        (body("hi", json!({"generationConfig": []})), "generationConfig"),
        (body("hi", json!({"tools": [7]})), "tools[0]"),
        (body("hi", json!({"trunkline": {"colour": "red"}})), "trunkline.colour"),
    ] {
        for path in [WHOLE, EVENTS, COUNT] {
            let error = error(&post(&gateway, path, &asked), 400, "INVALID_ARGUMENT");
            assert_eq!(error["details"][1]["fieldViolations"][0]["field"], field, "{error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(field) && message.len() < 500, "{error}");
        }
    }
    for bytes in ["", "[]", "{", "\"hi\""] {
        let head = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{bytes}", bytes.len());
        let address = gateway.address();
        let request = format!("POST {WHOLE} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{head}");
        error(&send_raw(address, &request).finish(), 400, "INVALID_ARGUMENT");
    }
    assert!(!gateway.path("seen/ran").exists(), "nothing ran");
}

#[test]
fn unknown_model_or_method_is_a_404() {
    let gateway = gateway("codex_answers ok").start();
    for path in ["/v1beta/models/unknown:generateContent", "/v1beta/models/unknown:streamGenerateContent?alt=sse"] {
        let error = error(&post(&gateway, path, &body("hi", json!({}))), 404, "NOT_FOUND");
        assert_eq!(error["details"][0]["reason"], "MODEL_NOT_FOUND", "{error}");
    }
    for path in ["/v1beta/models/m:embedContent", "/v1beta/models/m", "/v1beta/files"] {
        error(&post(&gateway, path, &body("hi", json!({}))), 404, "NOT_FOUND");
    }
}

#[test]
fn key_is_accepted_in_headers_but_not_in_the_address() {
    let gateway = gateway("codex_answers ok").env("TRUNKLINE_API_KEYS", "right-key-right-key").start();
    let address = format!("{WHOLE}?key=right-key-right-key");
    for (path, header, status) in [
        (WHOLE, "x-goog-api-key: right-key-right-key\r\n", 200),
        (WHOLE, "authorization: Bearer right-key-right-key\r\n", 200),
        (WHOLE, "x-goog-api-key: wrong\r\n", 401),
        (WHOLE, "", 401),
        (address.as_str(), "", 401),
    ] {
        let reply = ask(&gateway, path, header, &body("hi", json!({}))).finish();
        assert_eq!(reply.status, status, "{path} {header}: {reply:?}");
        if status == 401 {
            error(&reply, 401, "UNAUTHENTICATED");
        }
    }
}
