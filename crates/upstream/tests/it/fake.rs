//! A scripted server, and helpers for the tests.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use trunkline_core::api::{Api, ServiceKey};
use trunkline_core::event::{Answer, Event};
use trunkline_core::failure::Failure;
use trunkline_upstream::{Upstream, UpstreamCall, UpstreamTimeouts};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A server on a free port.
pub(crate) struct FakeUpstream {
    listener: TcpListener,
}

/// An accepted connection whose request was read.
pub(crate) struct FakeConnection {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    stream: TcpStream,
}

impl FakeUpstream {
    pub(crate) async fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(crate) fn host(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    pub(crate) fn api(&self) -> Api {
        Api { name: "fake".into(), base_url: format!("http://{}/v1", self.host()), key: None }
    }

    pub(crate) fn api_with_key(&self, value: &str) -> Api {
        Api { key: Some(ServiceKey { variable: "FAKE_KEY".into(), value: Some(value.into()) }), ..self.api() }
    }

    pub(crate) async fn accept(&self) -> FakeConnection {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        let head = loop {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "the request ends in its head");
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break String::from_utf8(bytes.drain(..end + 4).collect()).unwrap().to_lowercase();
            }
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        while bytes.len() < length {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "the request ends in its body");
        }
        FakeConnection { head, body: bytes, stream }
    }

    /// Accepts a connection whose first bytes are not a request.
    pub(crate) async fn accept_raw(&self) -> FakeConnection {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut body = Vec::new();
        stream.read_buf(&mut body).await.unwrap();
        FakeConnection { head: String::new(), body, stream }
    }

    /// Answers one request with a complete body.
    pub(crate) async fn answer(&self, status: &str, headers: &str, body: &str) -> FakeConnection {
        let mut connection = self.accept().await;
        let length = body.len();
        connection
            .send(format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}").as_bytes())
            .await;
        connection
    }

    /// Answers one request with a chunked body. The caller ends it.
    pub(crate) async fn stream(&self, pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> FakeConnection {
        let mut connection = self.accept().await;
        connection
            .send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        for piece in pieces {
            connection.send_chunk(piece.as_ref()).await;
        }
        connection
    }
}

impl FakeConnection {
    /// Ignores errors: the client may have closed the connection.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Sends one chunk of a chunked body.
    pub(crate) async fn send_chunk(&mut self, bytes: &[u8]) {
        let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
        framed.extend_from_slice(bytes);
        framed.extend_from_slice(b"\r\n");
        self.send(&framed).await;
    }

    pub(crate) async fn end(&mut self) {
        self.send(b"0\r\n\r\n").await;
    }

    /// Waits until the client has closed its side.
    pub(crate) async fn closed(mut self) {
        let mut rest = Vec::new();
        // A reset counts as closed, too.
        let read = self.stream.read_to_end(&mut rest);
        let read = tokio::time::timeout(LIMIT, read).await.expect("the client closes its side");
        assert!(read.is_err() || rest.is_empty(), "more than one request: {rest:?}");
    }
}

pub(crate) fn call(api: &Api) -> UpstreamCall {
    Upstream::new().call(api, b"{}".to_vec(), &[], UpstreamTimeouts::in_all(LIMIT), String::from("four").into())
}

pub(crate) async fn all(mut call: UpstreamCall) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = call.next().await {
        events.push(event);
    }
    assert_eq!(call.next().await, None, "no event follows the last one");
    events
}

pub(crate) fn text(events: &[Event]) -> String {
    let delta = |event: &Event| if let Event::Text { delta } = event { Some(delta.clone()) } else { None };
    events.iter().filter_map(delta).collect()
}

pub(crate) fn end(mut events: Vec<Event>) -> Result<Answer, Failure> {
    events.pop().and_then(Event::end).expect("the last event is final")
}

pub(crate) fn delta(text: &str) -> String {
    format!("data: {}\n\n", serde_json::json!({"model": "m", "choices": [{"index": 0, "delta": {"content": text}}]}))
}

pub(crate) const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n";
pub(crate) const DONE: &str = "data: [DONE]\n\n";
