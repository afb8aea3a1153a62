//! A minimal HTTP/1.1 client: blocking, one connection per request. It can disconnect in the middle of a response.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::test_gateway::TEST_TIMEOUT;

/// Builder of a chat request.
pub(crate) struct RequestBuilder {
    address: String,
    body: Map<String, Value>,
    messages: Vec<Value>,
    headers: Vec<(String, String)>,
}

/// A request that was sent and whose reply is still to be read. Dropping it closes the connection.
pub(crate) struct PendingReply {
    socket: TcpStream,
    read: Vec<u8>,
}

/// A complete HTTP response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl RequestBuilder {
    pub(crate) fn new(address: &str, model: &str, text: &str) -> Self {
        let mut body = Map::new();
        body.insert("model".into(), model.into());
        let messages = vec![json!({"role": "user", "content": text})];
        Self { address: address.to_owned(), body, messages, headers: Vec::new() }
    }

    pub(crate) fn model(self, name: &str) -> Self {
        self.with("model", name)
    }

    pub(crate) fn streamed(self) -> Self {
        self.with("stream", true)
    }

    /// Inserts a message before the user's message.
    pub(crate) fn preceded_by(mut self, role: &str, content: impl Into<Value>) -> Self {
        let last = self.messages.len() - 1;
        self.messages.insert(last, json!({"role": role, "content": content.into()}));
        self
    }

    /// Replaces all messages.
    pub(crate) fn with_messages(mut self, messages: Vec<Value>) -> Self {
        self.messages = messages;
        self
    }

    /// Adds an image to the user's message.
    pub(crate) fn image(mut self, url: &str) -> Self {
        let message = self.messages.last_mut().unwrap();
        let text = message["content"].take();
        message["content"] = json!([{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]);
        self
    }

    /// Sets a member of the request body.
    pub(crate) fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.body.insert(member.to_owned(), value.into());
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends the request and reads the whole reply.
    pub(crate) fn send(self) -> Reply {
        self.open().finish()
    }

    /// Sends the request without reading the reply.
    pub(crate) fn open(mut self) -> PendingReply {
        self.body.insert("messages".into(), self.messages.into());
        let body = serde_json::to_string(&self.body).unwrap();
        let mut head = "POST /v1/chat/completions HTTP/1.1\r\nconnection: close\r\n".to_owned();
        if !self.headers.iter().any(|(name, _)| name == "host") {
            head.push_str(&format!("host: {}\r\n", self.address));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len()));
        send_raw(&self.address, &(head + &body))
    }
}

/// Sends the bytes of a request unchanged.
pub(crate) fn send_raw(address: &str, request: &str) -> PendingReply {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    PendingReply { socket, read: Vec::new() }
}

impl PendingReply {
    /// Reads until the reply contains `needle`.
    pub(crate) fn read_until(&mut self, needle: &str) {
        while !String::from_utf8_lossy(&self.read).contains(needle) {
            let mut more = [0; 65536];
            let count = self.socket.read(&mut more).unwrap();
            assert!(count > 0, "closed before {needle:?}: {}", String::from_utf8_lossy(&self.read));
            self.read.extend_from_slice(&more[..count]);
        }
    }

    /// The part of the reply that has arrived so far.
    pub(crate) fn arrived(&mut self) -> String {
        self.socket.set_nonblocking(true).unwrap();
        // Ends with an error if the reply continues.
        let _ = self.socket.read_to_end(&mut self.read);
        self.socket.set_nonblocking(false).unwrap();
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// The status code, or `None` if it does not arrive within 200 ms.
    pub(crate) fn status_soon(mut self) -> Option<u16> {
        self.socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut head = [0; 12];
        self.socket.read_exact(&mut head).ok()?;
        std::str::from_utf8(&head[9..]).unwrap().parse().ok()
    }

    /// Reads the reply to its end.
    pub(crate) fn finish(mut self) -> Reply {
        self.socket.read_to_end(&mut self.read).unwrap();
        Reply::parse(&self.read)
    }
}

impl Reply {
    fn parse(raw: &[u8]) -> Self {
        let end = raw.windows(4).position(|part| part == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("not a response: {:?}", String::from_utf8_lossy(raw)));
        let head = String::from_utf8(raw[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Self { status, head, body: String::new() };
        let body = &raw[end + 4..];
        let body = if reply.header("transfer-encoding") == Some("chunked") { unchunk(body) } else { body.to_vec() };
        reply.body = String::from_utf8(body).unwrap();
        reply
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The text of the completion; fails the test if there is none.
    #[track_caller]
    pub(crate) fn content(&self) -> String {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }

    /// The error object; fails the test unless the response has this status.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        let error = self.json()["error"].take();
        assert!(error["message"].is_string(), "{self:?}");
        error
    }

    /// The frames of a stream, without `[DONE]`.
    #[track_caller]
    pub(crate) fn frames(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{self:?}");
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"))).collect()
    }

    /// The concatenated text of a stream.
    #[track_caller]
    pub(crate) fn streamed_text(&self) -> String {
        let frames = self.frames();
        frames.iter().filter_map(|frame| frame["choices"][0]["delta"]["content"].as_str()).collect()
    }

    /// Whether a stream ends with `[DONE]`.
    pub(crate) fn is_done(&self) -> bool {
        self.body.ends_with("data: [DONE]\n\n")
    }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let line_end = body.windows(2).position(|part| part == b"\r\n").expect("a body that ends with an empty chunk");
        let length = usize::from_str_radix(std::str::from_utf8(&body[..line_end]).unwrap(), 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole.extend_from_slice(&body[line_end + 2..][..length]);
        body = &body[line_end + 2 + length + 2..];
    }
}
