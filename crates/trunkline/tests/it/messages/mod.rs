//! `POST /v1/messages`, `count_tokens`, and models in Anthropic's shape.

#[path = "../../../../server/src/dialect/messages/test_grammar.rs"]
mod grammar;

mod answers;
mod bad_input;

use serde_json::{Value, json};

use crate::http::{PendingReply, Reply, send_raw};
use crate::test_gateway::TestGateway;

/// Prints a message, waits for the test, and prints another one.
const SLOW: &str = "tell pid $$; codex_says one; await go; codex_says two; codex_ends";

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

fn get(gateway: &TestGateway, path: &str, headers: &str) -> Reply {
    let address = gateway.address();
    send_raw(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\r\n")).finish()
}

/// The body of a request for the model `m` with one message, and further members.
fn body(content: impl Into<Value>, more: Value) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": content.into()}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn post(gateway: &TestGateway, body: &Value) -> Reply {
    ask(gateway, "/v1/messages", "", body).finish()
}

/// A message that was answered whole.
#[track_caller]
fn message(gateway: &TestGateway, body: &Value) -> Value {
    let reply = post(gateway, body);
    assert_eq!(reply.status, 200, "{reply:?}");
    let message = reply.json();
    grammar::check_message(&message);
    message
}

/// The text of all blocks.
fn text(message: &Value) -> String {
    message["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect()
}

/// The error of a reply, in Anthropic's shape.
#[track_caller]
fn error(reply: &Reply, status: u16) -> Value {
    let error = reply.error(status);
    let envelope = reply.json();
    assert_eq!((&envelope["type"], envelope["request_id"].as_str()), (&json!("error"), reply.header("request-id")));
    assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
    error
}
