//! `POST /v1/responses` and the routes of stored responses.

#[path = "../../../../server/src/dialect/responses/test_grammar.rs"]
mod grammar;

mod answers;
mod bad_input;
mod conversation;
mod killed;
mod stored;

use serde_json::{Value, json};

use crate::http::{PendingReply, Reply, send_raw};
use crate::test_gateway::TestGateway;

/// Reports a session, prints a message, waits for the test, and prints another one.
const SLOW: &str = "tell pid $$; codex_says one; await go; codex_says two; codex_ends";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--grace", "500ms"])
}

/// Sends a request with these header lines.
fn ask(gateway: &TestGateway, method: &str, path: &str, headers: &str, body: Option<&Value>) -> PendingReply {
    let address = gateway.address();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
    match body {
        None => send_raw(address, &format!("{head}\r\n")),
        Some(body) => {
            let body = body.to_string();
            let length = body.len();
            send_raw(
                address,
                &format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"),
            )
        }
    }
}

/// The body of a request for the model `m`, with further members.
fn body(input: impl Into<Value>, more: Value) -> Value {
    let mut body = json!({"model": "m", "input": input.into()});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn post(gateway: &TestGateway, body: &Value) -> Reply {
    ask(gateway, "POST", "/v1/responses", "", Some(body)).finish()
}

/// A response that was answered whole.
#[track_caller]
fn respond(gateway: &TestGateway, body: &Value) -> Value {
    let reply = post(gateway, body);
    assert_eq!(reply.status, 200, "{reply:?}");
    let response = reply.json();
    grammar::check_response(&response);
    response
}

#[track_caller]
fn get(gateway: &TestGateway, response: &Value) -> Value {
    let reply = gateway.get(&path(response));
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

fn path(response: &Value) -> String {
    format!("/v1/responses/{}", id(response))
}

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

/// The text of all messages.
fn text(response: &Value) -> String {
    let items = response["output"].as_array().unwrap();
    let parts = items.iter().filter_map(|item| item["content"].as_array()).flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}
