//! A tap on the wire between a CLI and the mock LLM: passes everything on as it is and keeps a copy, so that a case can
//! say what the model was told and what it answered.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::Result;
use serde_json::Value;

use super::http::{Message, messages};

/// What went over one connection so far, in both directions.
#[derive(Default)]
struct Connection {
    to_model: Vec<u8>,
    from_model: Vec<u8>,
}

#[derive(Clone)]
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<Arc<Mutex<Connection>>>>>,
}

/// One call of the model.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) asked: Message,
    pub(crate) answered: Message,
}

/// Tokens as the model counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl Tap {
    /// Opens a tap that lasts until the chore ends.
    pub(crate) fn open(mock: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let tap = Self { address: listener.local_addr()?, connections: Arc::default() };
        let connections = Arc::clone(&tap.connections);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(model) = TcpStream::connect(mock) else { continue };
                let record = Arc::new(Mutex::new(Connection::default()));
                connections.lock().expect("nobody panics").push(Arc::clone(&record));
                if let (Ok(client_too), Ok(model_too)) = (client.try_clone(), model.try_clone()) {
                    let copy = Arc::clone(&record);
                    thread::spawn(move || pass(client, model, |bytes| lock(&copy).to_model.extend_from_slice(bytes)));
                    thread::spawn(move || {
                        pass(model_too, client_too, |bytes| lock(&record).from_model.extend_from_slice(bytes));
                    });
                }
            }
        });
        Ok(tap)
    }

    /// What was asked and answered until now, apart from chatter such as `HEAD /`.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let connections = self.connections.lock().expect("nobody panics").clone();
        connections.iter().flat_map(|connection| calls_of(&lock(connection))).collect()
    }

    /// Whether these words are somewhere in one of the requests.
    pub(crate) fn heard(&self, words: &str) -> bool {
        self.calls().iter().any(|call| call.says(words))
    }

    /// What the model counted over all its answers.
    pub(crate) fn tokens(&self) -> Tokens {
        self.calls().iter().map(Call::tokens).fold(Tokens::default(), |sum, call| Tokens {
            input: sum.input + call.input,
            output: sum.output + call.output,
        })
    }
}

impl Call {
    pub(crate) fn says(&self, words: &str) -> bool {
        any_text(&self.asked.json(), &|text| text.contains(words))
    }

    /// How many texts of the request have these words.
    pub(crate) fn count(&self, words: &str) -> usize {
        let found = Cell::new(0);
        // Each text is looked at, and none is the last.
        any_text(&self.asked.json(), &|text| {
            found.set(found.get() + text.matches(words).count());
            false
        });
        found.get()
    }

    /// The tools that the model was offered, by name.
    pub(crate) fn tools(&self) -> BTreeSet<String> {
        let asked = self.asked.json();
        let tools = asked["tools"].as_array().into_iter().flatten();
        let declared = tools.flat_map(|tool| match tool["functionDeclarations"].as_array() {
            Some(functions) => functions.iter().collect(),
            None => vec![tool],
        });
        let name = |tool: &Value| {
            let names = [&tool["function"]["name"], &tool["name"], &tool["type"]];
            names.into_iter().find_map(Value::as_str).map(str::to_owned)
        };
        declared.filter_map(name).collect()
    }

    /// Vendors name them differently, and streams repeat them as they grow: the largest is the last word.
    fn tokens(&self) -> Tokens {
        let frames = self.answered.frames();
        let largest = |names: &[&str]| frames.iter().map(|frame| number(frame, names)).max().unwrap_or(0);
        Tokens {
            input: largest(&["prompt_tokens", "input_tokens", "promptTokenCount"]),
            output: largest(&["completion_tokens", "output_tokens", "candidatesTokenCount"]),
        }
    }
}

fn calls_of(connection: &Connection) -> Vec<Call> {
    let asked = messages(&connection.to_model, |_| true);
    let with_body = |index: usize| asked.get(index).is_none_or(|request| !request.head.starts_with("HEAD "));
    let answered = messages(&connection.from_model, with_body);
    let answers = answered.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    let calls = asked.iter().cloned().zip(answers);
    let calls = calls.map(|(asked, answered)| Call { asked, answered: answered.unwrap_or_default() });
    let counts_only = |head: &str| head.contains("count_tokens") || head.contains(":countTokens");
    calls.filter(|call| call.asked.head.starts_with("POST ") && !counts_only(&call.asked.head)).collect()
}

fn any_text(value: &Value, test: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => test(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, test)),
        Value::Object(members) => members.values().any(|member| any_text(member, test)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The largest number under one of these names, however deep.
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

fn pass(mut from: TcpStream, mut to: TcpStream, keep: impl Fn(&[u8])) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        keep(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // Whoever hangs up hangs up for both sides: a stalled answer ends only so.
    let _both_may_be_gone = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_in_each_vendors_words() {
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
            let answered = Message { head: String::new(), body: body.into() };
            let call = Call { asked: Message::default(), answered };
            assert_eq!(call.tokens(), Tokens { input, output }, "{body}");
        }
    }

    #[test]
    fn tools_in_each_vendors_words() {
        for body in [
            r#"{"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}]}"#,
            r#"{"tools":[{"type":"function","name":"a"},{"type":"b"}]}"#,
            r#"{"tools":[{"name":"b","input_schema":{}},{"name":"a"}]}"#,
            r#"{"tools":[{"functionDeclarations":[{"name":"a"},{"name":"b"}]}]}"#,
        ] {
            let asked = Message { head: String::new(), body: body.into() };
            let call = Call { asked, answered: Message::default() };
            assert_eq!(call.tools(), ["a", "b"].map(str::to_owned).into(), "{body}");
        }
    }

    #[test]
    fn what_goes_over_it_is_kept_and_passed_on() {
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
        assert!(tap.heard("hello") && !tap.heard("bye"));
        assert_eq!(tap.calls()[0].answered.status(), 200);
    }
}
