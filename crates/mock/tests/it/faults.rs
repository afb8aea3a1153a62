//! Injected faults from the client's point of view.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::mock::{GO, GO_STREAMED, MockServer, RawResponse};

/// Longest wait for data that is expected; generous for slow machines.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn error_has_its_status_and_retry_after_header() {
    let mock = MockServer::with_step(r#"{"error": {"status": 429, "retry_after": 2, "message": "later"}}"#).await;
    for body in [GO, GO_STREAMED] {
        let answer = mock.ask("POST", "/v1/chat/completions", body).await;
        assert_eq!(answer.status, 429);
        assert!(answer.head.contains("\r\nretry-after: 2\r\n"), "{}", answer.head);
        assert_eq!(answer.json()["error"]["message"], "later");
        assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded");
    }
    let anthropic = mock.ask("POST", "/v1/messages", GO).await;
    assert_eq!((anthropic.status, anthropic.json()["error"]["type"].as_str()), (429, Some("rate_limit_error")));
    mock.stop().await;
}

#[tokio::test]
async fn body_is_cut_after_the_given_bytes_when_connection_is_dropped() {
    let mock = MockServer::with_step(r#"{"response": {"content": "a long answer"}, "drop_after": 20}"#).await;
    for body in [GO, GO_STREAMED] {
        let mut bytes = Vec::new();
        let mut socket = mock.send("POST", "/v1/chat/completions", body).await;
        // The connection may end with EOF or with a reset.
        let _ = timeout(READ_TIMEOUT, socket.read_to_end(&mut bytes)).await.expect("the connection is closed");
        let answer = RawResponse::parse(&bytes);
        assert_eq!((answer.status, answer.body.len(), answer.complete), (200, 20, false), "{answer:?}");
    }
    mock.stop().await;
}

#[tokio::test]
async fn body_is_split_inside_characters() {
    let mock =
        MockServer::with_step(r#"{"response": {"content": "Größe 漢字漢字漢字漢字 🎉"}, "chunk_bytes": 7}"#).await;
    let answer = mock.go().await;
    let (last, full) = answer.chunks.split_last().unwrap();
    assert!(full.iter().all(|size| *size == 7) && (1..=7).contains(last), "{:?}", answer.chunks);
    assert!(answer.complete);
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "Größe 漢字漢字漢字漢字 🎉");
    let cut_inside = answer.body.chunks(7).any(|piece| std::str::from_utf8(piece).is_err());
    assert!(cut_inside, "no split is inside a character");

    let streamed = mock.ask("POST", "/v1/chat/completions", GO_STREAMED).await;
    assert!(streamed.complete && streamed.text().ends_with("data: [DONE]\n\n"));
    mock.stop().await;
}

#[tokio::test]
async fn stall_sends_nothing_and_ends_when_client_disconnects() {
    let mock = MockServer::with_step(r#"{"stall": true}"#).await;
    let mut socket = mock.send("POST", "/v1/chat/completions", GO).await;
    let mut byte = [0];
    let read = timeout(Duration::from_millis(200), socket.read(&mut byte)).await;
    assert!(read.is_err(), "received data instead of silence: {read:?}");
    disconnect(socket).await;
    // A stalled client does not block the server.
    let _stalled = mock.send("POST", "/v1/chat/completions", GO).await;
    assert_eq!(mock.ask("GET", "/health", "").await.status, 200);
    timeout(READ_TIMEOUT, mock.stop()).await.expect("a stalled response does not keep the server running");
}

/// Disconnects, and waits until the server has closed its side. A server that still tried to answer would not close it.
async fn disconnect(mut socket: TcpStream) {
    socket.shutdown().await.unwrap();
    let mut rest = Vec::new();
    timeout(READ_TIMEOUT, socket.read_to_end(&mut rest)).await.expect("the server closes the connection").unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn stall_starts_after_the_given_bytes() {
    let mock = MockServer::with_step(r#"{"response": {"content": "a long answer"}, "stall": 20}"#).await;
    let mut socket = mock.send("POST", "/v1/chat/completions", GO_STREAMED).await;
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n14\r\ndata: {\"choices\":[{\"\r\n") {
        let mut piece = [0; 1024];
        let count = timeout(READ_TIMEOUT, socket.read(&mut piece)).await.expect("the first bytes arrive").unwrap();
        assert!(count > 0, "ended instead of stalling: {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..count]);
    }
    let mut byte = [0];
    assert!(
        timeout(Duration::from_millis(200), socket.read(&mut byte)).await.is_err(),
        "received data instead of silence"
    );
    disconnect(socket).await;
    timeout(READ_TIMEOUT, mock.stop()).await.unwrap();
}

#[tokio::test]
async fn delay_precedes_the_response_and_pace_separates_frames() {
    let mock =
        MockServer::with_step(r#"{"response": {"content": "one two three"}, "delay_ms": 100, "pace_ms": 20}"#).await;
    let start = Instant::now();
    let answer = mock.ask("POST", "/v1/chat/completions", GO_STREAMED).await;
    // Six frames (role, three words, finish, [DONE]) have five pauses between them.
    assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
    assert_eq!(answer.chunks.len(), 6);
    mock.stop().await;
}
