//! Tools of the client on an agent CLI: the run ends with the calls, and the next request continues the process with the results.

mod agent;
mod calls;
mod choice;
mod dialects;
mod mcp_server;
mod parked;
mod servers;

use std::fs;

use serde_json::{Value, json};

use crate::http::{Reply, send_raw};
use crate::test_gateway::TestGateway;

/// A gateway whose model `m` is a fake claude that calls tools as its prompt says.
fn gateway(entry: Value) -> TestGateway {
    let mut model = json!({"driver": "claude"});
    model.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/client_tools/fake_claude.py");
    let script = format!("PATH=/usr/bin:/bin:$PATH; SEEN=$seen exec python3 '{program}' \"$@\"");
    TestGateway::new().cli("claude", &script).model("m", model).args(&["--grace", "500ms"])
}

fn tool(name: &str) -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!({"type": "function", "function": {"name": name, "description": "A tool", "parameters": parameters}})
}

fn tools() -> Value {
    json!([tool("weather"), tool("time")])
}

fn post(gateway: &TestGateway, path: &str, headers: &str, body: &Value) -> Reply {
    let (address, body) = (gateway.address(), body.to_string());
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
    let length = body.len();
    let request = format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
    send_raw(address, &request).finish()
}

/// A conversation in chat completions, with the tools `weather` and `time`.
struct Dialogue<'a> {
    gateway: &'a TestGateway,
    messages: Vec<Value>,
    more: Value,
}

impl<'a> Dialogue<'a> {
    fn new(gateway: &'a TestGateway, text: &str) -> Self {
        let messages = vec![json!({"role": "user", "content": text})];
        Self { gateway, messages, more: json!({"tools": tools()}) }
    }

    fn with(mut self, member: &str, value: Value) -> Self {
        self.more[member] = value;
        self
    }

    fn send(&self) -> Reply {
        let mut body = json!({"model": "m", "messages": self.messages});
        body.as_object_mut().unwrap().extend(self.more.as_object().unwrap().clone());
        post(self.gateway, "/v1/chat/completions", "", &body)
    }

    /// Sends the messages, and returns the calls of the answer: id, name and arguments.
    #[track_caller]
    fn calls(&mut self) -> Vec<(String, String, Value)> {
        let reply = self.send();
        assert_eq!(reply.status, 200, "{reply:?}");
        let choice = reply.json()["choices"][0].take();
        assert_eq!(choice["finish_reason"], "tool_calls", "{reply:?}");
        self.messages.push(choice["message"].clone());
        let calls = choice["message"]["tool_calls"].as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let call = |call: &Value| {
            let arguments = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            (text(&call["id"]), text(&call["function"]["name"]), arguments)
        };
        calls.iter().map(call).collect()
    }

    /// Adds the result of a call.
    fn result(&mut self, id: &str, text: &str) {
        self.messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
    }

    fn say(&mut self, reply: &Reply, text: &str) {
        self.messages.push(json!({"role": "assistant", "content": reply.content()}));
        self.messages.push(json!({"role": "user", "content": text}));
    }
}

/// Number of processes that were started.
fn processes(gateway: &TestGateway) -> Vec<u32> {
    let notes = fs::read_dir(gateway.path("seen")).unwrap();
    let names = notes.map(|note| note.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_prefix("pid.")?.parse().ok()).collect()
}

fn runs(gateway: &TestGateway, query: &str) -> Vec<Value> {
    gateway.get(&format!("/v1/runs{query}")).json()["data"].as_array().unwrap().clone()
}
