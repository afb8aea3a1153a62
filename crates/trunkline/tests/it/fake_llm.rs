//! A fake OpenAI-compatible service with scripted responses.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// A service on its own port. Answers each request with the next script and records the requests.
pub(crate) struct FakeLlm {
    pub(crate) url: String,
    /// Head and JSON body of each request.
    pub(crate) seen: Arc<Mutex<Vec<(String, Value)>>>,
}

pub(crate) enum Script {
    /// Sends a response with this status, additional header lines, and body.
    Says(u16, &'static str, String),
    /// Sends the beginning of a stream, waits until the client disconnects, and then records the given marker.
    Hangs(String, &'static str),
}

impl FakeLlm {
    pub(crate) fn new(scripts: impl IntoIterator<Item = Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut scripts: VecDeque<Script> = scripts.into_iter().collect();
        let requests = Arc::clone(&seen);
        thread::spawn(move || {
            while let Some(script) = scripts.pop_front() {
                let Ok((socket, _)) = listener.accept() else { return };
                serve(socket, script, &requests);
            }
        });
        Self { url, seen }
    }

    pub(crate) fn seen(&self) -> Vec<(String, Value)> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(mut socket: TcpStream, script: Script, seen: &Mutex<Vec<(String, Value)>>) {
    let mut request = Vec::new();
    let mut piece = [0; 65536];
    loop {
        let count = socket.read(&mut piece).unwrap();
        assert!(count > 0, "closed in the middle of a request");
        request.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            seen.lock().unwrap().push((head.to_owned(), serde_json::from_str(body).unwrap_or_default()));
            break;
        }
    }
    match script {
        Script::Says(status, headers, body) => {
            let head =
                format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n", body.len());
            socket.write_all((head + &body).as_bytes()).unwrap();
        }
        Script::Hangs(body, marker) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            socket.write_all((head.to_owned() + &body).as_bytes()).unwrap();
            while socket.read(&mut piece).is_ok_and(|count| count > 0) {}
            seen.lock().unwrap().push((marker.to_owned(), Value::Null));
        }
    }
}

pub(crate) fn whole(message: Value, finish: &str) -> Script {
    let body = json!({"id": "x", "object": "chat.completion", "created": 1, "model": "gpt-x",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 2}}});
    Script::Says(200, "content-type: application/json\r\n", body.to_string())
}

pub(crate) fn stream(deltas: &[Value], finish: &str) -> Script {
    let frame = |choices: Value, usage: Value| {
        format!(
            "data: {}\n\n",
            json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x",
            "choices": choices, "usage": usage})
        )
    };
    let choice = |delta: &Value, finish: Value| json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    let mut body: String = deltas.iter().map(|delta| frame(choice(delta, Value::Null), Value::Null)).collect();
    body += &frame(choice(&json!({}), json!(finish)), Value::Null);
    body += &frame(json!([]), json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}));
    Script::Says(200, "content-type: text/event-stream\r\n", body + "data: [DONE]\n\n")
}

pub(crate) fn refusal(status: u16, headers: &'static str, error: Value) -> Script {
    Script::Says(status, headers, json!({"error": error}).to_string())
}
