//! Calls end: by their limit, by being dropped, by their size.

use std::time::Duration;

use trunkline_core::failure::{Category, Failure};
use trunkline_upstream::{Patience, Upstream};

use crate::fake::{Fake, LIMIT, STOP, all, call, delta, end, text};

/// Long enough for loopback, short enough for a test that waits for it.
const SHORT: Duration = Duration::from_millis(300);

fn too_long() -> Failure {
    Failure::timed_out().hint("the upstream took longer than its total limit (config.timeout)")
}

#[tokio::test]
async fn a_server_that_stalls_runs_into_the_limit() {
    let fake = Fake::new().await;
    let short = || Upstream::new().call(&fake.api(), vec![], &[], Patience::in_all(SHORT), String::new());
    let (_held, events) = tokio::join!(fake.asked(), all(short()));
    assert_eq!(end(events), Err(too_long()), "before its status");
    let (_held, events) = tokio::join!(fake.stream([delta("some")]), all(short()));
    assert_eq!((text(&events).as_str(), end(events)), ("some", Err(too_long())), "inside its answer");
    let (_held, events) = tokio::join!(fake.stream([delta("all"), STOP.to_owned()]), all(short()));
    assert_eq!(end(events).unwrap().content, "all", "a finished answer is one, end mark or not");
    let upstream = Upstream::new();
    let api = fake.api();
    let (_held, count) = tokio::join!(fake.asked(), upstream.models(&api, SHORT));
    assert_eq!(count.unwrap_err().category, Category::Timeout);
}

#[tokio::test]
async fn an_answer_may_take_its_time_but_not_be_silent() {
    let fake = Fake::new().await;
    let patience = Patience { total: LIMIT, silence: 4 * SHORT };
    let asking = || Upstream::new().call(&fake.api(), vec![], &[], patience, String::new());
    let (_held, events) = tokio::join!(fake.asked(), all(asking()));
    assert_eq!(end(events).unwrap_err().category, Category::Timeout, "before its status");
    let server = async {
        let mut asked = fake.stream([delta("a")]).await;
        for _ in 0..4 {
            tokio::time::sleep(SHORT).await;
            asked.piece(delta("a").as_bytes()).await;
        }
        asked
    };
    let (_held, events) = tokio::join!(server, all(asking()));
    assert_eq!((text(&events).as_str(), end(events).unwrap_err().category), ("aaaaa", Category::Timeout));
}

#[tokio::test]
async fn an_error_whose_body_stalls_is_judged_by_its_status() {
    let fake = Fake::new().await;
    let call = Upstream::new().call(&fake.api(), vec![], &[], Patience::in_all(SHORT), String::new());
    let server = async {
        let mut asked = fake.asked().await;
        asked.send(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 100\r\n\r\nhalf a").await;
        asked
    };
    let (_held, events) = tokio::join!(server, all(call));
    assert_eq!(end(events).unwrap_err(), Failure::new(Category::Server, "half a"));
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection() {
    let fake = Fake::new().await;
    let mut waiting = call(&fake.api());
    let asked = tokio::select! {
        asked = fake.asked() => asked,
        event = waiting.next() => panic!("nothing was answered: {event:?}"),
    };
    drop(waiting);
    asked.closed().await;

    let mut reading = call(&fake.api());
    let (asked, event) = tokio::join!(fake.stream([delta("a")]), reading.next());
    assert!(event.is_some());
    drop(reading);
    asked.closed().await;
}

#[tokio::test]
async fn a_frame_without_end_is_given_up() {
    let fake = Fake::new().await;
    let piece = vec![b'x'; 1024 * 1024];
    let server = async {
        let mut asked = fake.stream(["data: "]).await;
        for _ in 0..20 {
            asked.piece(&piece).await;
        }
        asked.closed().await;
    };
    let ((), events) = tokio::join!(server, all(call(&fake.api())));
    let failure = end(events).unwrap_err();
    assert_eq!(failure.category, Category::Server);
    assert!(failure.message.contains("16 MiB"), "{failure}");
}
