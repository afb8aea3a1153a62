//! `POST /v1beta/models/{model}:generateContent` and its siblings.

#[path = "../../../../server/src/dialect/gemini/test_grammar.rs"]
mod grammar;

mod answers;
mod bad_input;

use serde_json::{Value, json};

use crate::http::{PendingReply, Reply, send_raw};
use crate::test_gateway::TestGateway;

/// Prints a message, waits for the test, and prints another one.
const SLOW: &str = "tell pid $$; codex_says one; await go; codex_says two; codex_ends";

const WHOLE: &str = "/v1beta/models/m:generateContent";
const EVENTS: &str = "/v1beta/models/m:streamGenerateContent?alt=sse";
const ARRAY: &str = "/v1beta/models/m:streamGenerateContent";
const COUNT: &str = "/v1beta/models/m:countTokens";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--grace", "500ms"])
}

/// Sends a request with these header lines.
fn ask(gateway: &TestGateway, path: &str, headers: &str, body: &Value) -> PendingReply {
    let (address, body) = (gateway.address(), body.to_string());
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
    let length = body.len();
    send_raw(address, &format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"))
}

/// The body of a request with one text, and further members.
fn body(text: &str, more: Value) -> Value {
    let mut body = json!({"contents": [{"role": "user", "parts": [{"text": text}]}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn post(gateway: &TestGateway, path: &str, body: &Value) -> Reply {
    ask(gateway, path, "", body).finish()
}

/// A response that was answered whole.
#[track_caller]
fn respond(gateway: &TestGateway, body: &Value) -> Value {
    let reply = post(gateway, WHOLE, body);
    assert_eq!(reply.status, 200, "{reply:?}");
    let response = reply.json();
    grammar::check_response(&response);
    response
}

fn parts(response: &Value) -> &Value {
    &response["candidates"][0]["content"]["parts"]
}

/// The text of all parts that are no thoughts.
fn text(response: &Value) -> String {
    let parts = parts(response).as_array().unwrap().iter();
    parts.filter(|part| part.get("thought").is_none()).filter_map(|part| part["text"].as_str()).collect()
}

/// The error of a reply, in Google's shape.
#[track_caller]
fn error(reply: &Reply, status: u16, name: &str) -> Value {
    let error = reply.error(status);
    assert_eq!((&error["code"], &error["status"]), (&json!(status), &json!(name)), "{reply:?}");
    assert!(error["details"].is_array(), "{reply:?}");
    error
}
