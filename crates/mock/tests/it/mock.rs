//! A mock server with a script, and a minimal client that writes and reads raw bytes.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trunkline_mock::{MockScript, serve};

pub(crate) struct MockServer {
    address: std::net::SocketAddr,
    stop: CancellationToken,
    server: JoinSet<()>,
}

impl MockServer {
    pub(crate) async fn with_script(script: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let mut server = JoinSet::new();
        server.spawn(serve(listener, MockScript::parse(script).unwrap().into(), stop.clone()));
        Self { address, stop, server }
    }

    /// Starts a server whose script has one scenario, `go`, with one step.
    pub(crate) async fn with_step(step: &str) -> Self {
        Self::with_script(&format!(r#"{{"scenarios": [{{"trigger": "go", "steps": [{step}]}}]}}"#)).await
    }

    /// Sends a request. The caller reads the response.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let length = body.len();
        self.send_raw(&format!("{method} {path} HTTP/1.1\r\ncontent-length: {length}"), body).await
    }

    /// Sends a request whose head starts with `head`.
    pub(crate) async fn send_raw(&self, head: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{head}\r\nhost: mock\r\nconnection: close\r\n\r\n{body}");
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> RawResponse {
        let mut bytes = Vec::new();
        self.send(method, path, body).await.read_to_end(&mut bytes).await.unwrap();
        RawResponse::parse(&bytes)
    }

    /// Sends a request that the scenario `go` answers.
    pub(crate) async fn go(&self) -> RawResponse {
        self.ask("POST", "/v1/chat/completions", GO).await
    }

    /// Stops the server and waits until it has stopped.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(result) = self.server.join_next().await {
            result.unwrap();
        }
    }
}

pub(crate) const GO: &str = r#"{"messages": [{"role": "user", "content": "go"}]}"#;
pub(crate) const GO_STREAMED: &str = r#"{"stream": true, "messages": [{"role": "user", "content": "go"}]}"#;

/// HTTP response, with the sizes of the chunks of its body.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) chunks: Vec<usize>,
    /// Whether the body is complete.
    pub(crate) complete: bool,
}

impl RawResponse {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("the response has a head") + 4;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let (mut rest, mut body, mut chunks) = (&bytes[end..], Vec::new(), Vec::new());
        if !head.contains("transfer-encoding: chunked") {
            return Self { status, head, body: rest.to_vec(), chunks, complete: true };
        }
        let mut complete = false;
        while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            if size == 0 {
                complete = true;
                break;
            }
            body.extend_from_slice(&rest[line + 2..line + 2 + size]);
            chunks.push(size);
            rest = &rest[line + 4 + size..];
        }
        Self { status, head, body, chunks, complete }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}
