//! A fake Ollama server, and functions that run the provider against it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

/// Longest wait for a request; reached only when a test fails.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that handles one request.
pub(crate) struct FakeOllama {
    pub(crate) host: String,
    requests: Receiver<RecordedRequest>,
}

/// A request that the server received.
#[derive(Debug)]
pub(crate) struct RecordedRequest {
    /// Request line, such as `POST /api/generate HTTP/1.1`.
    pub(crate) line: String,
    pub(crate) body: Value,
}

/// Output and exit code of the provider.
#[derive(Debug)]
pub(crate) struct ProviderRun {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl FakeOllama {
    /// Reads one request and lets `respond` write arbitrary bytes.
    pub(crate) fn new(respond: impl FnOnce(&mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            sender.send(read_request(&mut stream)).unwrap();
            respond(&mut stream);
        });
        Self { host, requests }
    }

    /// Responds with a status and a body.
    pub(crate) fn responding(status: &str, body: impl Into<String>) -> Self {
        let (status, body) = (status.to_owned(), body.into());
        Self::new(move |stream| {
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
                .unwrap();
        })
    }

    /// Streams these lines, each in an HTTP chunk of its own.
    pub(crate) fn streaming(lines: &[Value]) -> Self {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
        Self::new(move |stream| {
            begin_stream(stream);
            lines.iter().for_each(|line| send_chunk(stream, line.as_bytes()));
            send_chunk(stream, b"");
        })
    }

    /// Returns the request that the server received.
    pub(crate) fn request(&self) -> RecordedRequest {
        self.requests.recv_timeout(REQUEST_TIMEOUT).expect("the provider sends a request")
    }

    pub(crate) fn run(&self, command: &str, request: &Value) -> ProviderRun {
        finish(self.start(command, request))
    }

    pub(crate) fn start(&self, command: &str, request: &Value) -> Child {
        start(&[command], &[("OLLAMA_HOST", &self.host)], request.to_string().as_bytes())
    }
}

pub(crate) fn begin_stream(stream: &mut TcpStream) {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n")
        .unwrap();
}

/// Sends an HTTP chunk; an empty one ends the body.
pub(crate) fn send_chunk(stream: &mut TcpStream, bytes: &[u8]) {
    write!(stream, "{:x}\r\n", bytes.len()).unwrap();
    stream.write_all(bytes).unwrap();
    stream.write_all(b"\r\n").unwrap();
}

fn read_request(stream: &mut TcpStream) -> RecordedRequest {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    RecordedRequest { line: line.trim().to_owned(), body }
}

/// Starts the provider with an environment of its own, so that settings of the test runner have no effect.
#[expect(clippy::disallowed_methods, reason = "tests start the provider itself")]
pub(crate) fn start(arguments: &[&str], env: &[(&str, &str)], stdin: &[u8]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ollama-provider"));
    command.args(arguments).env_clear().envs(env.iter().copied());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The provider may exit without reading all of its stdin.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child
}

pub(crate) fn finish(child: Child) -> ProviderRun {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    ProviderRun { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

impl ProviderRun {
    /// Returns the only JSON object on stdout.
    #[track_caller]
    pub(crate) fn object(&self) -> Value {
        let lines = self.lines();
        assert_eq!(lines.len(), 1, "{self:?}");
        lines[0].clone()
    }

    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        assert!(self.stdout.ends_with('\n'), "{self:?}");
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asserts that the provider failed with this exit code and reported the error on stdout and stderr. Returns the
    /// error.
    #[track_caller]
    pub(crate) fn error(&self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        let last = self.lines().pop().unwrap();
        let error = last["error"].as_str().unwrap().to_owned();
        assert!(!error.is_empty() && self.stderr.contains(&error), "{self:?}");
        error
    }
}
