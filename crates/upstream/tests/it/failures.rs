//! Tests the failures when a server refuses, breaks off or is not reachable.

use std::time::Duration;

use trunkline_core::api::{Api, ServiceKey};
use trunkline_core::failure::{Category, Failure, FailureRule};
use trunkline_upstream::{Upstream, UpstreamTimeouts};

use crate::fake::{FakeUpstream, LIMIT, STOP, all, call, delta, end, text};

async fn refusal(status: &str, headers: &str, body: &str) -> Failure {
    let fake = FakeUpstream::new().await;
    let (_, events) = tokio::join!(fake.answer(status, headers, body), all(call(&fake.api())));
    assert_eq!(events.len(), 1, "{events:?}");
    end(events).unwrap_err()
}

#[tokio::test]
async fn error_status_is_classified() {
    use Category::*;
    for (status, headers, body, category, message, wait) in [
        ("401 Unauthorized", "", r#"{"error":{"message":"no key"}}"#, Authentication, "no key", None),
        ("404 Not Found", "", r#"{"error":{"message":"no such model"}}"#, NotFound, "no such model", None),
        (
            "429 Too Many Requests",
            "retry-after: 7\r\n",
            r#"{"error":{"message":"slow"}}"#,
            RateLimit,
            "slow",
            Some(7000),
        ),
        ("429 Too Many Requests", "retry-after-ms: 70\r\n", "slow\nmore", RateLimit, "slow", Some(70)),
        ("429 Too Many Requests", "", "slow", RateLimit, "slow", Some(1000)),
        (
            "503 Service Unavailable",
            "date: Wed, 21 Oct 2015 07:28:00 GMT\r\nretry-after: Wed, 21 Oct 2015 07:28:09 GMT\r\n",
            "",
            Server,
            "the upstream answered with status 503",
            Some(9000),
        ),
        ("500 Internal Server Error", "", r#"{"error":"out of memory"}"#, Server, "out of memory", None),
        (
            "502 Bad Gateway",
            "content-type: text/html\r\n",
            "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>",
            Server,
            "502 Bad Gateway",
            None,
        ),
        (
            "301 Moved Permanently",
            "location: http://127.0.0.1:9/\r\n",
            "",
            Configuration,
            "the upstream redirects (status 301); redirects are not followed",
            None,
        ),
    ] {
        let failure = refusal(status, headers, body).await;
        let found = (failure.category, failure.message.as_str(), failure.retry_after);
        assert_eq!(found, (category, message, wait.map(Duration::from_millis)), "{status}");
    }
}

#[tokio::test]
async fn large_error_body_is_truncated() {
    let failure = refusal("500 Internal Server Error", "", &"x".repeat(1024 * 1024)).await;
    assert_eq!((failure.category, failure.message.chars().count()), (Category::Server, 4000));
}

#[tokio::test]
async fn rules_of_the_upstream_classify_its_errors() {
    let fake = FakeUpstream::new().await;
    let rules = [FailureRule { contains: "warming up".into(), is: Category::Server, weak: false, session_lost: false }];
    let call = Upstream::new().call(&fake.api(), vec![], &rules, UpstreamTimeouts::in_all(LIMIT), String::new().into());
    let (_, events) = tokio::join!(fake.answer("400 Bad Request", "", "warming up"), all(call));
    assert_eq!(end(events).unwrap_err().category, Category::Server);
    let call = Upstream::new().call(&fake.api(), vec![], &rules, UpstreamTimeouts::in_all(LIMIT), String::new().into());
    let (_, events) = tokio::join!(fake.stream(["data: {\"error\":\"warming up\"}\n\n"]), all(call));
    assert_eq!(end(events).unwrap_err().category, Category::Server);
}

#[tokio::test]
async fn connection_refused_is_a_network_failure() {
    let fake = FakeUpstream::new().await;
    let (api, host) = (fake.api(), fake.host());
    drop(fake);
    let failure = end(all(call(&api)).await).unwrap_err();
    assert_eq!(failure.category, Category::Network);
    assert!(failure.message.starts_with(&format!("cannot connect to {host}: Connection refused")), "{failure}");
    assert_eq!(failure.hint.as_deref(), Some("is it running? check base_url"));
    assert_eq!(Upstream::new().models(&api, LIMIT).await.unwrap_err(), failure);
}

#[tokio::test]
async fn https_to_a_server_without_tls_fails_with_a_hint() {
    let fake = FakeUpstream::new().await;
    let api = Api { base_url: format!("https://{}/v1", fake.host()), ..fake.api() };
    // A plain HTTP server answers a TLS handshake like this.
    let server = async {
        let mut connection = fake.accept_raw().await;
        connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        connection
    };
    let mut call = call(&api);
    let event = tokio::select! {
        event = call.next() => event,
        connection = server => { let event = call.next().await; drop(connection); event }
    };
    let failure = event.unwrap().end().unwrap().unwrap_err();
    // A machine without certificates does not get as far as the handshake.
    let expected = format!("cannot speak TLS with {}", fake.host());
    let without = format!("cannot call {}", fake.host());
    assert!(failure.message.starts_with(&expected) || failure.message.starts_with(&without), "{failure}");
    assert!(failure.hint.is_some());
}

#[tokio::test]
async fn incomplete_answer_is_a_failure() {
    let fake = FakeUpstream::new().await;
    let server = async { drop(fake.stream([delta("half")]).await) };
    let ((), events) = tokio::join!(server, all(call(&fake.api())));
    assert_eq!(text(&events), "half", "the text so far is delivered");
    let failure = end(events).unwrap_err();
    assert_eq!(failure.category, Category::Network);
    assert!(failure.message.starts_with("the upstream's answer ended too early: "), "{failure}");

    let server = async { fake.stream([delta("half")]).await.end().await };
    let ((), events) = tokio::join!(server, all(call(&fake.api())));
    assert_eq!(
        end(events).unwrap_err().message,
        "the upstream's answer ended too early",
        "an orderly end without a finish reason"
    );

    let server = async { drop(fake.stream([delta("all"), STOP.to_owned()]).await) };
    let ((), events) = tokio::join!(server, all(call(&fake.api())));
    assert_eq!(end(events).unwrap().content, "all", "the answer was complete");

    let server = async { drop(fake.accept().await) };
    let ((), events) = tokio::join!(server, all(call(&fake.api())));
    let failure = end(events).unwrap_err();
    assert!(failure.category == Category::Network && failure.message.contains(&fake.host()), "{failure}");
}

#[tokio::test]
async fn key_is_masked_in_failures() {
    let fake = FakeUpstream::new().await;
    let key = "hunter2-hunter2";
    let body = format!(r#"{{"error":{{"message":"wrong key: {key}","code":"invalid_api_key"}}}}"#);
    let refused = fake.answer("401 Unauthorized", "connection: close\r\n", &body);
    let (_, events) = tokio::join!(refused, all(call(&fake.api_with_key(key))));
    let failure = end(events).unwrap_err();
    assert_eq!(
        (failure.message.as_str(), failure.hint.as_deref()),
        ("wrong key: ***", Some("check the key in FAKE_KEY"))
    );

    let (_, events) = tokio::join!(fake.stream([format!("data: {body}\n\n")]), all(call(&fake.api_with_key(key))));
    assert_eq!(end(events).unwrap_err().message, "wrong key: ***", "in a stream");

    let api = fake.api_with_key(key);
    drop(fake);
    assert!(!format!("{:?}", all(call(&api)).await).contains("hunter2"));
}

#[tokio::test]
async fn unset_key_is_reported_before_anything_is_sent() {
    let key = Some(ServiceKey { variable: "FAKE_KEY".into(), value: None });
    let api = Api { name: "fake".into(), base_url: "http://127.0.0.1:1/v1".into(), key };
    let expected =
        Failure::new(Category::Configuration, "the variable FAKE_KEY is not set").hint("export FAKE_KEY=… and restart");
    assert_eq!(end(all(call(&api)).await), Err(expected.clone()));
    assert_eq!(Upstream::new().models(&api, LIMIT).await, Err(expected));
}
