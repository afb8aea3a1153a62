//! Answers over real sockets, and clients that disconnect or stop reading.

use std::time::Duration;

use tokio::sync::mpsc::Sender;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::failure::{Category, Failure};
use trunkline_server::{HttpLimits, ServerConfig};

use crate::support::{TestServer, ask_scripted, finished, soon, text, until};

async fn play(run: &Sender<Event>, events: impl IntoIterator<Item = Event>) {
    for event in events {
        soon(run.send(event)).await.unwrap();
    }
}

#[tokio::test]
async fn whole_answer_is_one_response() {
    let server = TestServer::start(ServerConfig::default()).await;
    let run = server.script();
    let started = Event::Started { session: Some(SessionId("s-1".into())), model: None };
    play(&run, [started, text("hello"), finished("hello")]).await;
    let reply = server.ask(&ask_scripted(r#","session_id":"s-0""#)).await;
    assert_eq!((reply.status, reply.header("x-trunkline-provider")), (200, Some("fake")));
    assert_eq!(reply.header("x-trunkline-session"), Some("s-1"));
    let body = reply.json();
    assert!(body["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!(body["choices"][0]["message"]["content"], "hello");
    assert_eq!(server.turns()[0].session, Some(SessionId("s-0".into())));
}

#[tokio::test]
async fn session_header_takes_precedence_over_the_body() {
    let server = TestServer::start(ServerConfig::default()).await;
    play(&server.script(), [finished("")]).await;
    let request = ask_scripted(r#","session_id":"body""#).replacen("\r\n", "\r\nx-trunkline-session: header\r\n", 1);
    server.ask(&request).await;
    assert_eq!(server.turns()[0].session, Some(SessionId("header".into())));
}

#[tokio::test]
async fn stream_is_sent_as_events_come() {
    let server = TestServer::start(ServerConfig::default()).await;
    let run = server.script();
    let mut client = server.connect().await;
    client.send(ask_scripted(r#","stream":true,"stream_options":{"include_usage":true}"#).as_bytes()).await;
    play(&run, [text("one")]).await;
    let head = client.until("\"one\"").await;
    assert!(head.contains("content-type: text/event-stream") && head.contains("cache-control: no-cache"), "{head}");
    play(&run, [text("two")]).await;
    client.until("\"two\"").await;
    play(&run, [finished("onetwo")]).await;
    // The script is still open: the end of the body does not wait for it.
    let reply = client.reply().await;
    assert!(reply.body.contains("\"choices\":[],\"usage\":{") && reply.body.ends_with("data: [DONE]\n\n"), "{reply:?}");
    soon(run.closed()).await;
}

#[tokio::test]
async fn failure_is_a_status_before_and_a_frame_after_the_first_event() {
    let server = TestServer::start(ServerConfig::default()).await;
    let failed = || Event::Failed(Failure::new(Category::Quota, "out of credit"));
    play(&server.script(), [failed()]).await;
    let early = server.ask(&ask_scripted(r#","stream":true"#)).await;
    assert_eq!((early.status, early.header("x-should-retry")), (429, Some("false")));
    assert_eq!(early.json()["error"]["detail"], "out of credit");
    play(&server.script(), [text("a"), failed()]).await;
    let late = server.ask(&ask_scripted(r#","stream":true"#)).await;
    assert_eq!(late.status, 200);
    assert!(late.body.contains("data: {\"error\":{\"message\":\"CLI failed: ") && !late.body.contains("[DONE]"));
}

#[tokio::test]
async fn silent_stream_is_kept_alive() {
    let limits = HttpLimits { keep_alive: Duration::from_millis(30), ..HttpLimits::default() };
    let server = TestServer::with_limits(limits).await;
    let run = server.script();
    let mut client = server.connect().await;
    client.send(ask_scripted(r#","stream":true"#).as_bytes()).await;
    client.until(": keep-alive\n\n").await;
    play(&run, [finished("done")]).await;
    assert!(client.reply().await.body.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn run_is_dropped_when_the_client_disconnects() {
    let server = TestServer::start(ServerConfig::default()).await;
    // Before anything was sent, and in the middle of a stream.
    for (members, events, seen) in [
        ("", vec![], None),
        ("", vec![text("a")], None),
        (r#","stream":true"#, vec![], None),
        (r#","stream":true"#, vec![text("a")], Some("\"a\"")),
    ] {
        let run = server.script();
        let before = server.turns().len();
        let mut client = server.connect().await;
        client.send(ask_scripted(members).as_bytes()).await;
        play(&run, events).await;
        until(|| server.turns().len() > before).await;
        if let Some(seen) = seen {
            client.until(seen).await;
        }
        drop(client);
        soon(run.closed()).await;
    }
}

#[tokio::test]
async fn case_04_connection_is_closed_when_the_client_stops_reading() {
    let limits = HttpLimits { write_stall: Duration::from_millis(100), ..HttpLimits::default() };
    let server = TestServer::with_limits(limits).await;
    let run = server.script();
    let mut client = server.connect().await;
    client.send(ask_scripted(r#","stream":true"#).as_bytes()).await;
    let flood = async { while run.send(text(&"x".repeat(10_000))).await.is_ok() {} };
    soon(flood).await;
    drop(client);
}

#[tokio::test]
async fn stream_may_last_longer_than_the_head_timeout() {
    let limits = HttpLimits {
        header_read: Duration::from_millis(50),
        body_idle: Duration::from_millis(50),
        write_stall: Duration::from_millis(50),
        keep_alive: Duration::from_millis(20),
        ..HttpLimits::default()
    };
    let server = TestServer::with_limits(limits).await;
    let run = server.script();
    let mut client = server.connect().await;
    client.send(ask_scripted(r#","stream":true"#).as_bytes()).await;
    while client.until("keep-alive").await.matches("keep-alive").count() < 10 {
        client.more().await;
    }
    play(&run, [finished("done")]).await;
    assert!(client.reply().await.body.ends_with("data: [DONE]\n\n"));
}
