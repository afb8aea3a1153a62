//! Minimal HTTP: a client for one request on one connection, and a parser for recorded connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

/// Read timeout of a request: one that hangs fails its case, not the suite.
const READ_TIMEOUT: Duration = Duration::from_secs(240);

/// A request or a reply.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpMessage {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl HttpMessage {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &'_ str| line.split_once(':').filter(|(key, _)| key.eq_ignore_ascii_case(name)).is_some();
        self.head.lines().find(|text| line(text))?.split_once(':').map(|(_, value)| value.trim())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null if it is not JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Every JSON value in the body: the frames of a stream, or the body itself.
    pub(crate) fn frames(&self) -> Vec<Value> {
        let text = self.text();
        let frames = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let frames: Vec<Value> = frames.filter_map(|data| serde_json::from_str(data.trim()).ok()).collect();
        if frames.is_empty() { vec![self.json()] } else { frames }
    }
}

/// A connection on which a request has been sent.
pub(crate) struct SentHttpRequest(TcpStream);

impl SentHttpRequest {
    pub(crate) fn post(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &str) -> Result<Self> {
        let extra = lines(headers);
        Self::send(
            address,
            &format!(
                "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n{extra}\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            ),
        )
    }

    pub(crate) fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Result<Self> {
        let extra = lines(headers);
        Self::send(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{extra}\r\n"))
    }

    pub(crate) fn delete(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Result<Self> {
        let extra = lines(headers);
        Self::send(address, &format!("DELETE {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{extra}\r\n"))
    }

    fn send(address: SocketAddr, request: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.write_all(request.as_bytes())?;
        Ok(Self(stream))
    }

    /// Waits for the whole reply.
    pub(crate) fn reply(mut self) -> Result<HttpMessage> {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).context("the gateway did not answer in time")?;
        messages(&bytes, |_| true).into_iter().next().context("the gateway closed the connection without an answer")
    }
}

fn lines(headers: &[(&str, &str)]) -> String {
    headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

/// Parses the bytes of one direction of a connection. `has_body` returns whether the n-th message may have a body: a reply
/// to HEAD announces a body and has none. An incomplete message is returned as far as it was received.
pub(crate) fn messages(bytes: &[u8], has_body: impl Fn(usize) -> bool) -> Vec<HttpMessage> {
    let mut all = Vec::new();
    let mut rest = bytes;
    while let Some(end) = find(rest, b"\r\n\r\n") {
        let mut message = HttpMessage { head: String::from_utf8_lossy(&rest[..end]).into_owned(), body: Vec::new() };
        rest = &rest[end + 4..];
        let chunked = message.header("transfer-encoding").is_some_and(|value| value.contains("chunked"));
        let length: usize = message.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        if !has_body(all.len()) {
        } else if chunked {
            (message.body, rest) = unchunk(rest);
        } else {
            let (body, after) = rest.split_at(length.min(rest.len()));
            message.body = body.to_vec();
            rest = after;
        }
        all.push(message);
    }
    all
}

fn unchunk(mut rest: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut body = Vec::new();
    while let Some(end) = find(rest, b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|line| usize::from_str_radix(line.trim(), 16).ok());
        let Some(size) = size else { break };
        rest = &rest[end + 2..];
        let available = size.min(rest.len());
        body.extend_from_slice(&rest[..available]);
        rest = &rest[(available + 2).min(rest.len())..];
        if size == 0 {
            break;
        }
    }
    (body, rest)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_connection_are_parsed() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n\
            HTTP/1.1 429 Too Many\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n\
            HTTP/1.1 500 Cut\r\ncontent-length: 100\r\n\r\nhal";
        let read = messages(bytes, |index| index != 1);
        let bodies: Vec<String> = read.iter().map(HttpMessage::text).collect();
        assert_eq!(bodies, ["hello", "", "abcde", "hal"]);
        assert_eq!(read.iter().map(HttpMessage::status).collect::<Vec<_>>(), [200, 200, 429, 500]);
        assert_eq!(read[0].header("content-length"), Some("5"));
    }
}
