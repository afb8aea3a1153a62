//! Tests how calls end early: by a timeout, by being dropped, by the size of a frame.

use std::time::Duration;

use trunkline_core::failure::{Category, Failure};
use trunkline_upstream::{Upstream, UpstreamTimeouts};

use crate::fake::{FakeUpstream, LIMIT, STOP, all, call, delta, end, text};

/// Long enough for loopback, short enough for a test that waits until it is over.
const SHORT: Duration = Duration::from_millis(300);

fn too_long() -> Failure {
    Failure::timed_out().hint("the upstream took longer than its total limit (config.timeout)")
}

#[tokio::test]
async fn call_times_out_when_server_stalls() {
    let fake = FakeUpstream::new().await;
    let short =
        || Upstream::new().call(&fake.api(), vec![], &[], UpstreamTimeouts::in_all(SHORT), String::new().into());
    let (_held, events) = tokio::join!(fake.accept(), all(short()));
    assert_eq!(end(events), Err(too_long()), "before its status");
    let (_held, events) = tokio::join!(fake.stream([delta("some")]), all(short()));
    assert_eq!((text(&events).as_str(), end(events)), ("some", Err(too_long())), "inside its answer");
    let (_held, events) = tokio::join!(fake.stream([delta("all"), STOP.to_owned()]), all(short()));
    assert_eq!(end(events).unwrap().content, "all", "a complete answer needs no end mark");
    let upstream = Upstream::new();
    let api = fake.api();
    let (_held, count) = tokio::join!(fake.accept(), upstream.models(&api, SHORT));
    assert_eq!(count.unwrap_err().category, Category::Timeout);
}

#[tokio::test]
async fn answer_times_out_when_it_pauses_too_long() {
    let fake = FakeUpstream::new().await;
    let timeouts = UpstreamTimeouts { total: LIMIT, silence: 4 * SHORT };
    let call = || Upstream::new().call(&fake.api(), vec![], &[], timeouts, String::new().into());
    let (_held, events) = tokio::join!(fake.accept(), all(call()));
    assert_eq!(end(events).unwrap_err().category, Category::Timeout, "before its status");
    let server = async {
        let mut connection = fake.stream([delta("a")]).await;
        for _ in 0..4 {
            tokio::time::sleep(SHORT).await;
            connection.send_chunk(delta("a").as_bytes()).await;
        }
        connection
    };
    let (_held, events) = tokio::join!(server, all(call()));
    assert_eq!((text(&events).as_str(), end(events).unwrap_err().category), ("aaaaa", Category::Timeout));
}

#[tokio::test]
async fn error_is_classified_by_status_when_its_body_stalls() {
    let fake = FakeUpstream::new().await;
    let call = Upstream::new().call(&fake.api(), vec![], &[], UpstreamTimeouts::in_all(SHORT), String::new().into());
    let server = async {
        let mut connection = fake.accept().await;
        connection.send(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 100\r\n\r\nhalf a").await;
        connection
    };
    let (_held, events) = tokio::join!(server, all(call));
    assert_eq!(end(events).unwrap_err(), Failure::new(Category::Server, "half a"));
}

#[tokio::test]
async fn connection_is_closed_when_call_is_dropped() {
    let fake = FakeUpstream::new().await;
    let mut waiting = call(&fake.api());
    let connection = tokio::select! {
        connection = fake.accept() => connection,
        event = waiting.next() => panic!("unexpected event: {event:?}"),
    };
    drop(waiting);
    connection.closed().await;

    let mut reading = call(&fake.api());
    let (connection, event) = tokio::join!(fake.stream([delta("a")]), reading.next());
    assert!(event.is_some());
    drop(reading);
    connection.closed().await;
}

#[tokio::test]
async fn call_fails_when_a_frame_never_ends() {
    let fake = FakeUpstream::new().await;
    let piece = vec![b'x'; 1024 * 1024];
    let server = async {
        let mut connection = fake.stream(["data: "]).await;
        for _ in 0..20 {
            connection.send_chunk(&piece).await;
        }
        connection.closed().await;
    };
    let ((), events) = tokio::join!(server, all(call(&fake.api())));
    let failure = end(events).unwrap_err();
    assert_eq!(failure.category, Category::Server);
    assert!(failure.message.contains("16 MiB"), "{failure}");
}
