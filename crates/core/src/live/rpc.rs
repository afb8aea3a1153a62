//! JSON-RPC messages, as far as ACP and the Codex app-server need them. Only ACP writes the `jsonrpc` member.

use serde_json::{Value, json};

use super::exchange::to_line;

/// Writer of our messages, with the number of the last request.
#[derive(Debug)]
pub(super) struct Rpc {
    versioned: bool,
    last: u64,
}

/// Message from the process.
pub(super) enum RpcMessage<'a> {
    /// Answer to our request with this number.
    Result(u64, &'a Value),
    Error(u64, &'a Value),
    /// Request of the process: its id, method and parameters.
    Request(&'a Value, &'a str, &'a Value),
    Notification(&'a str, &'a Value),
    Other,
}

impl Rpc {
    pub(super) fn new(versioned: bool) -> Self {
        Self { versioned, last: 0 }
    }

    /// Returns the number of a new request, and its line.
    pub(super) fn request(&mut self, method: &str, params: Value) -> (u64, Vec<u8>) {
        self.last += 1;
        (self.last, self.to_line(json!({"id": self.last, "method": method, "params": params})))
    }

    /// Number of the last request.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn notification(&self, method: &str, params: Option<Value>) -> Vec<u8> {
        self.to_line(match params {
            Some(params) => json!({"method": method, "params": params}),
            None => json!({"method": method}),
        })
    }

    pub(super) fn result(&self, id: &Value, result: Value) -> Vec<u8> {
        self.to_line(json!({"id": id, "result": result}))
    }

    /// Answer to a method that we do not support.
    pub(super) fn unsupported(&self, id: &Value, method: &str) -> Vec<u8> {
        self.to_line(json!({"id": id, "error": {"code": -32601, "message": format!("{method} is not supported")}}))
    }

    /// Answer to a request that is refused.
    pub(super) fn error(&self, id: &Value, message: &str) -> Vec<u8> {
        self.to_line(json!({"id": id, "error": {"code": -32000, "message": message}}))
    }

    fn to_line(&self, mut message: Value) -> Vec<u8> {
        if self.versioned {
            message["jsonrpc"] = "2.0".into();
        }
        to_line(&message)
    }
}

/// Classifies a message by its members.
pub(super) fn read(message: &Value) -> RpcMessage<'_> {
    let params = message.get("params").unwrap_or(&Value::Null);
    let id = message.get("id").filter(|id| !id.is_null());
    match (message.get("method").and_then(Value::as_str), id) {
        (Some(method), Some(id)) => RpcMessage::Request(id, method, params),
        (Some(method), None) => RpcMessage::Notification(method, params),
        (None, Some(id)) => match (id.as_u64(), message.get("result"), message.get("error")) {
            (Some(id), _, Some(error)) => RpcMessage::Error(id, error),
            (Some(id), Some(result), None) => RpcMessage::Result(id, result),
            _ => RpcMessage::Other,
        },
        (None, None) => RpcMessage::Other,
    }
}

/// Message and details of an error.
pub(super) fn error_text(error: &Value) -> String {
    let text = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
    match error.pointer("/data/details").and_then(Value::as_str) {
        Some(details) => format!("{text}: {details}"),
        None => text.to_owned(),
    }
}

/// Our name and version, for `initialize`.
pub(super) fn client() -> Value {
    json!({"name": "trunkline", "title": "Trunkline", "version": env!("CARGO_PKG_VERSION")})
}
