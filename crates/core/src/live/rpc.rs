//! The messages of JSON-RPC, as far as both protocols that use it need them: whether the member that names the version is
//! written is the only difference between them.

use serde_json::{Value, json};

use super::exchange::words;

/// How a side writes its messages, and the number of the last request.
#[derive(Debug)]
pub(super) struct Rpc {
    versioned: bool,
    last: u64,
}

/// A message of the other side.
pub(super) enum RpcMessage<'a> {
    /// The answer to the request of this number.
    Result(u64, &'a Value),
    Error(u64, &'a Value),
    /// It wants an answer under this id.
    Request(&'a Value, &'a str, &'a Value),
    Notification(&'a str, &'a Value),
    Other,
}

impl Rpc {
    pub(super) fn new(versioned: bool) -> Self {
        Self { versioned, last: 0 }
    }

    /// A request, and the number it is answered under.
    pub(super) fn request(&mut self, method: &str, params: Value) -> (u64, Vec<u8>) {
        self.last += 1;
        (self.last, self.words(json!({"id": self.last, "method": method, "params": params})))
    }

    /// The number of the last request.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn notification(&self, method: &str, params: Option<Value>) -> Vec<u8> {
        self.words(match params {
            Some(params) => json!({"method": method, "params": params}),
            None => json!({"method": method}),
        })
    }

    pub(super) fn result(&self, id: &Value, result: Value) -> Vec<u8> {
        self.words(json!({"id": id, "result": result}))
    }

    /// The answer to what nobody here offers.
    pub(super) fn refusal(&self, id: &Value, method: &str) -> Vec<u8> {
        self.words(json!({"id": id, "error": {"code": -32601, "message": format!("{method} is not offered here")}}))
    }

    /// The answer to a request that is understood and not granted.
    pub(super) fn error(&self, id: &Value, message: &str) -> Vec<u8> {
        self.words(json!({"id": id, "error": {"code": -32000, "message": message}}))
    }

    fn words(&self, mut message: Value) -> Vec<u8> {
        if self.versioned {
            message["jsonrpc"] = "2.0".into();
        }
        words(&message)
    }
}

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

/// Why a request was refused.
pub(super) fn why(error: &Value) -> String {
    let text = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
    match error.pointer("/data/details").and_then(Value::as_str) {
        Some(details) => format!("{text}: {details}"),
        None => text.to_owned(),
    }
}

/// Who we are.
pub(super) fn client() -> Value {
    json!({"name": "trunkline", "title": "Trunkline", "version": env!("CARGO_PKG_VERSION")})
}
