//! A proxy between a CLI and the mock LLM that forwards every byte and keeps a copy, so that a case can check the requests
//! to the model and its answers.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::Result;
use serde_json::Value;

use super::http::{HttpMessage, messages};

/// Bytes of one connection so far, in both directions.
#[derive(Default)]
struct TapConnection {
    to_model: Vec<u8>,
    from_model: Vec<u8>,
}

#[derive(Clone)]
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<Arc<Mutex<TapConnection>>>>>,
}

/// One call of the model.
#[derive(Debug)]
pub(crate) struct TappedCall {
    pub(crate) request: HttpMessage,
    pub(crate) reply: HttpMessage,
}

/// Token counts reported by the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ModelTokens {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl Tap {
    /// Opens a tap that lasts until this program ends.
    pub(crate) fn open(mock: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let tap = Self { address: listener.local_addr()?, connections: Arc::default() };
        let connections = Arc::clone(&tap.connections);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(model) = TcpStream::connect(mock) else { continue };
                let record = Arc::new(Mutex::new(TapConnection::default()));
                connections.lock().expect("no thread panics").push(Arc::clone(&record));
                if let (Ok(client_too), Ok(model_too)) = (client.try_clone(), model.try_clone()) {
                    let copy = Arc::clone(&record);
                    thread::spawn(move || {
                        forward(client, model, |bytes| lock(&copy).to_model.extend_from_slice(bytes))
                    });
                    thread::spawn(move || {
                        forward(model_too, client_too, |bytes| lock(&record).from_model.extend_from_slice(bytes));
                    });
                }
            }
        });
        Ok(tap)
    }

    /// Calls of the model so far, without other requests such as `HEAD /`.
    pub(crate) fn calls(&self) -> Vec<TappedCall> {
        let connections = self.connections.lock().expect("no thread panics").clone();
        connections.iter().flat_map(|connection| calls_of(&lock(connection))).collect()
    }

    /// Whether one of the requests contains this text.
    pub(crate) fn received(&self, text: &str) -> bool {
        self.calls().iter().any(|call| call.contains(text))
    }

    /// Sum of the token counts of all answers.
    pub(crate) fn tokens(&self) -> ModelTokens {
        self.calls().iter().map(TappedCall::tokens).fold(ModelTokens::default(), |sum, call| ModelTokens {
            input: sum.input + call.input,
            output: sum.output + call.output,
        })
    }
}

impl TappedCall {
    /// Whether a string in the request contains this text.
    pub(crate) fn contains(&self, text: &str) -> bool {
        any_text(&self.request.json(), &|string| string.contains(text))
    }

    /// Number of occurrences of this text in the request.
    pub(crate) fn count(&self, text: &str) -> usize {
        let found = Cell::new(0);
        // The closure returns false, so that every string is visited.
        any_text(&self.request.json(), &|string| {
            found.set(found.get() + string.matches(text).count());
            false
        });
        found.get()
    }

    /// Names of the tools in the request. A tool in a namespace is `namespace/tool`.
    pub(crate) fn tools(&self) -> BTreeSet<String> {
        let request = self.request.json();
        let items = request["input"].as_array().into_iter().flatten();
        let among_input = items.filter(|item| item["type"] == "additional_tools").map(|item| &item["tools"]);
        [&request["tools"]].into_iter().chain(among_input).flat_map(tool_names).collect()
    }

    /// Token counts of the answer. Vendors use different names, and streams repeat growing counts: the largest is final.
    fn tokens(&self) -> ModelTokens {
        let frames = self.reply.frames();
        let largest = |names: &[&str]| frames.iter().map(|frame| number(frame, names)).max().unwrap_or(0);
        ModelTokens {
            input: largest(&["prompt_tokens", "input_tokens", "promptTokenCount"]),
            output: largest(&["completion_tokens", "output_tokens", "candidatesTokenCount"]),
        }
    }
}

fn tool_names(list: &Value) -> Vec<String> {
    let tools = list.as_array().into_iter().flatten();
    let names = tools.flat_map(|tool| match (&tool["functionDeclarations"], tool["name"].as_str()) {
        (functions @ Value::Array(_), _) => tool_names(functions),
        (_, Some(space)) if tool["type"] == "namespace" => {
            tool_names(&tool["tools"]).into_iter().map(|name| format!("{space}/{name}")).collect()
        }
        (_, name) => {
            let names = [tool["function"]["name"].as_str(), name, tool["type"].as_str()];
            names.into_iter().flatten().next().map(str::to_owned).into_iter().collect()
        }
    });
    names.collect()
}

fn calls_of(connection: &TapConnection) -> Vec<TappedCall> {
    let requests = messages(&connection.to_model, |_| true);
    let has_body = |index: usize| requests.get(index).is_none_or(|request| !request.head.starts_with("HEAD "));
    let replies = messages(&connection.from_model, has_body);
    let replies = replies.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    let calls = requests.iter().cloned().zip(replies);
    let calls = calls.map(|(request, reply)| TappedCall { request, reply: reply.unwrap_or_default() });
    let counts_only = |head: &str| head.contains("count_tokens") || head.contains(":countTokens");
    calls.filter(|call| call.request.head.starts_with("POST ") && !counts_only(&call.request.head)).collect()
}

fn any_text(value: &Value, test: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => test(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, test)),
        Value::Object(members) => members.values().any(|member| any_text(member, test)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The largest number with one of these names, at any depth.
fn number(value: &Value, names: &[&str]) -> u64 {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| match member.as_u64() {
                Some(count) if names.contains(&name.as_str()) => count,
                _ => number(member, names),
            })
            .max()
            .unwrap_or(0),
        Value::Array(items) => items.iter().map(|item| number(item, names)).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, keep: impl Fn(&[u8])) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        keep(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // A disconnect is forwarded to the other side: a stalled answer ends only this way.
    let _ = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_counts_are_read_in_the_format_of_each_vendor() {
        for (body, input, output) in [
            (r#"{"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}"#, 7, 3),
            (r#"{"usage":{"input_tokens":7,"output_tokens":3},"output":[{"text":"9"}]}"#, 7, 3),
            (
                "data: {\"message\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n\
                 data: {\"usage\":{\"output_tokens\":3}}\n\n",
                7,
                3,
            ),
            (r#"[{"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":3,"totalTokenCount":10}}]"#, 7, 3),
            (r#"{"error":{"message":"no"}}"#, 0, 0),
        ] {
            let reply = HttpMessage { head: String::new(), body: body.into() };
            let call = TappedCall { request: HttpMessage::default(), reply };
            assert_eq!(call.tokens(), ModelTokens { input, output }, "{body}");
        }
    }

    #[test]
    fn tools_are_read_in_the_format_of_each_vendor() {
        for body in [
            r#"{"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}]}"#,
            r#"{"tools":[{"type":"function","name":"a"},{"type":"b"}]}"#,
            r#"{"tools":[{"name":"b","input_schema":{}},{"name":"a"}]}"#,
            r#"{"tools":[{"functionDeclarations":[{"name":"a"},{"name":"b"}]}]}"#,
        ] {
            let request = HttpMessage { head: String::new(), body: body.into() };
            let call = TappedCall { request, reply: HttpMessage::default() };
            assert_eq!(call.tools(), ["a", "b"].map(str::to_owned).into(), "{body}");
        }
    }

    #[test]
    fn bytes_are_forwarded_and_recorded() {
        let model = TcpListener::bind("127.0.0.1:0").unwrap();
        let tap = Tap::open(model.local_addr().unwrap()).unwrap();
        let request = "POST /v1/x HTTP/1.1\r\ncontent-length: 15\r\n\r\n{\"a\":[\"hello\"]}";
        let mut client = TcpStream::connect(tap.address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let (mut served, _) = model.accept().unwrap();
        let mut got = vec![0; request.len()];
        served.read_exact(&mut got).unwrap();
        served.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        drop(served);
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        assert!(reply.ends_with("\r\n\r\n{}"), "{reply}");
        assert!(tap.received("hello") && !tap.received("bye"));
        assert_eq!(tap.calls()[0].reply.status(), 200);
    }
}
