//! Ollama's API: `/api/chat`, `/api/generate`, and the routes about models.

mod answers;
mod models;

use serde_json::{Value, json};

use crate::http::{PendingReply, Reply, send_raw};
use crate::test_gateway::TestGateway;

const PNG: &str = "iVBORw0KGgo=";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--grace", "500ms"])
}

/// Sends a request with these header lines.
fn open(gateway: &TestGateway, method: &str, path: &str, headers: &str, body: &Value) -> PendingReply {
    let (address, body) = (gateway.address(), body.to_string());
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}"
    );
    send_raw(address, &format!("{head}content-length: {}\r\n\r\n{body}", body.len()))
}

fn post(gateway: &TestGateway, path: &str, body: &Value) -> Reply {
    open(gateway, "POST", path, "", body).finish()
}

/// The body of a chat with the model `m`.
fn chat(text: &str, more: Value) -> Value {
    merged(json!({"model": "m", "messages": [{"role": "user", "content": text}]}), more)
}

fn generate(prompt: &str, more: Value) -> Value {
    merged(json!({"model": "m", "prompt": prompt}), more)
}

fn merged(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[track_caller]
fn lines(reply: &Reply) -> Vec<Value> {
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/x-ndjson")), "{reply:?}");
    assert!(reply.body.ends_with('\n'), "{reply:?}");
    reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The concatenated values of a member of all lines.
fn sum(lines: &[Value], pointer: &str) -> String {
    lines.iter().filter_map(|line| line.pointer(pointer)?.as_str()).collect()
}

/// The text of an error. It is all that the body has, except for the trace of a run.
#[track_caller]
fn error(reply: &Reply, status: u16) -> String {
    assert_eq!(reply.status, status, "{reply:?}");
    let body = reply.json();
    assert!(body.as_object().unwrap().keys().all(|name| name == "error" || name == "trunkline"), "{body}");
    body["error"].as_str().unwrap().to_owned()
}
