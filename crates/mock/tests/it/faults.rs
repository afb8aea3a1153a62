//! What goes wrong on purpose, as a client sees it.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::mock::{Answer, GO, GO_STREAMED, Mock};

/// Long enough for anything that does come, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn an_error_has_its_status_and_its_header() {
    let mock = Mock::with_step(r#"{"error": {"status": 429, "retry_after": 2, "message": "later"}}"#).await;
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
async fn an_answer_that_is_dropped_has_so_many_bytes_and_no_end() {
    let mock = Mock::with_step(r#"{"response": {"content": "a long answer"}, "drop_after": 20}"#).await;
    for body in [GO, GO_STREAMED] {
        let mut bytes = Vec::new();
        let mut socket = mock.send("POST", "/v1/chat/completions", body).await;
        // A reset is as good as an end.
        let _either = timeout(PATIENCE, socket.read_to_end(&mut bytes)).await.expect("the connection is closed");
        let answer = Answer::parse(&bytes);
        assert_eq!((answer.status, answer.body.len(), answer.complete), (200, 20, false), "{answer:?}");
    }
    mock.stop().await;
}

#[tokio::test]
async fn pieces_are_cut_wherever_that_is() {
    let mock = Mock::with_step(r#"{"response": {"content": "Größe 漢字漢字漢字漢字 🎉"}, "chunk_bytes": 7}"#).await;
    let answer = mock.go().await;
    let (last, full) = answer.chunks.split_last().unwrap();
    assert!(full.iter().all(|size| *size == 7) && (1..=7).contains(last), "{:?}", answer.chunks);
    assert!(answer.complete);
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "Größe 漢字漢字漢字漢字 🎉");
    let cut_inside = answer.body.chunks(7).any(|piece| std::str::from_utf8(piece).is_err());
    assert!(cut_inside, "the cuts are meant to fall inside characters");

    let streamed = mock.ask("POST", "/v1/chat/completions", GO_STREAMED).await;
    assert!(streamed.complete && streamed.text().ends_with("data: [DONE]\n\n"));
    mock.stop().await;
}

#[tokio::test]
async fn a_stall_says_nothing_and_ends_with_the_client() {
    let mock = Mock::with_step(r#"{"stall": true}"#).await;
    let mut socket = mock.send("POST", "/v1/chat/completions", GO).await;
    let mut byte = [0];
    let heard = timeout(Duration::from_millis(200), socket.read(&mut byte)).await;
    assert!(heard.is_err(), "nothing is said: {heard:?}");
    hang_up(socket).await;
    // Nor is the server held up by a client that stays.
    let _stays = mock.send("POST", "/v1/chat/completions", GO).await;
    assert_eq!(mock.ask("GET", "/health", "").await.status, 200);
    timeout(PATIENCE, mock.stop()).await.expect("a stalled answer does not keep the server");
}

/// Says goodbye, and waits until the server has let go: it would wait for ever if it still meant to answer.
async fn hang_up(mut socket: TcpStream) {
    socket.shutdown().await.unwrap();
    let mut rest = Vec::new();
    timeout(PATIENCE, socket.read_to_end(&mut rest)).await.expect("the server lets go").unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn a_stall_in_the_middle_comes_after_so_many_bytes() {
    let mock = Mock::with_step(r#"{"response": {"content": "a long answer"}, "stall": 20}"#).await;
    let mut socket = mock.send("POST", "/v1/chat/completions", GO_STREAMED).await;
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n14\r\ndata: {\"choices\":[{\"\r\n") {
        let mut piece = [0; 1024];
        let count = timeout(PATIENCE, socket.read(&mut piece)).await.expect("the beginning comes").unwrap();
        assert!(count > 0, "ended instead of stalling: {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..count]);
    }
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(200), socket.read(&mut byte)).await.is_err(), "and then nothing");
    hang_up(socket).await;
    timeout(PATIENCE, mock.stop()).await.unwrap();
}

#[tokio::test]
async fn a_delay_comes_before_and_a_pace_between() {
    let mock = Mock::with_step(r#"{"response": {"content": "one two three"}, "delay_ms": 100, "pace_ms": 20}"#).await;
    let began = Instant::now();
    let answer = mock.ask("POST", "/v1/chat/completions", GO_STREAMED).await;
    // Role, three words, the end and [DONE]: five pauses.
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    assert_eq!(answer.chunks.len(), 6);
    mock.stop().await;
}
