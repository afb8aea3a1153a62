//! Limits of keys, models and the gateway, and the errors for requests that exceed them.

use std::net::TcpStream;

use serde_json::json;

use crate::http::{RequestBuilder, send_raw};
use crate::metrics::metric_value;
use crate::observe::until;
use crate::test_gateway::TestGateway;

const SLOW: &str = "tell pid $$; await go; codex_answers done";

fn gateway(script: &str, args: &[&str]) -> TestGateway {
    TestGateway::new()
        .cli("codex", script)
        .model("m", json!({"driver": "codex"}))
        .env("TRUNKLINE_API_KEYS", "alice,bob")
        .args(args)
        .start()
}

/// A gateway whose limit of open files leaves only this many more than are open after a run.
fn gateway_with_spare_files(spare: u64) -> TestGateway {
    let mut gateway = gateway("codex_answers done", &["--metrics", "127.0.0.1:0"]);
    // The list opens a connection to the database, which stays open.
    let warm_up = |gateway: &TestGateway| {
        ask(gateway).send().content();
        gateway.get("/v1/runs").json();
    };
    warm_up(&gateway);
    let open = metric_value(&gateway, "open_files").unwrap();
    gateway.kill();
    let gateway = gateway.open_files(open + spare).start();
    warm_up(&gateway);
    gateway
}

/// A request with the key `alice`.
fn ask(gateway: &TestGateway) -> RequestBuilder {
    gateway.chat("hi").header("authorization", "Bearer alice")
}

fn connect(gateway: &TestGateway) -> TcpStream {
    TcpStream::connect(gateway.address()).unwrap()
}

#[test]
fn case_23_wrong_keys_are_rate_limited_and_valid_keys_are_not() {
    let gateway = gateway("codex_answers done", &[]);
    let with = |key: &str| gateway.chat("hi").header("authorization", &format!("Bearer {key}")).send();
    assert_eq!(with("alice").content(), "done");
    let mut tries = 0;
    let refused = loop {
        let reply = with(&format!("guess-{tries}"));
        if reply.status != 401 {
            break reply;
        }
        tries += 1;
    };
    assert!((10..100).contains(&tries), "{tries}");
    assert_eq!(refused.error(429)["code"], "rate_limit_exceeded");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=120).contains(&wait), "{wait}");
    assert_eq!(with("alice").content(), "done");
    assert_eq!(with("bob").content(), "done", "a key that was not used before");
    assert_eq!(gateway.get("/health").status, 200);
}

#[test]
fn requests_are_refused_when_a_key_exceeds_its_requests_per_minute() {
    let gateway = gateway("codex_answers done", &["--requests-per-minute-per-key", "2"]);
    let with = |key: &str| gateway.chat("hi").header("authorization", &format!("Bearer {key}")).send();
    let first = with("alice");
    assert_eq!(first.content(), "done");
    let named = ["limit", "remaining"].map(|name| first.header(&format!("x-ratelimit-{name}-requests")).unwrap());
    assert_eq!(named, ["2", "1"]);
    assert!(first.header("x-ratelimit-reset-requests").unwrap().ends_with('s'));
    with("alice").content();
    let refused = with("alice");
    assert_eq!(refused.error(429)["code"], "rate_limit_exceeded");
    assert_eq!(refused.header("x-ratelimit-remaining-requests"), Some("0"));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    with("bob").content();
}

#[test]
fn limits_in_the_keys_file_apply_to_their_key_only() {
    let digest = |key: &str| blake3::hash(key.as_bytes()).to_hex().to_string();
    let keys = format!("{} rpm=1 runs=1 # alice\n\n{}\n", digest("alice"), digest("bob"));
    let gateway = TestGateway::new()
        .cli("codex", "codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .file("keys", &keys);
    let path = gateway.repo().join("keys");
    let gateway = gateway.args(&["--keys-file", path.to_str().unwrap()]).start();
    let with = |key: &str| gateway.chat("hi").header("authorization", &format!("Bearer {key}")).send();
    with("alice").content();
    with("alice").error(429);
    with("bob").content();
    with("bob").content();
    with("carol").error(401);
}

#[test]
fn case_70_first_request_of_a_key_does_not_wait_for_all_those_of_another() {
    let script = "echo \"$TRUNKLINE_RUN\" >>\"$seen/order\"; tell pid $$; await go; codex_answers \"$TRUNKLINE_RUN\"";
    let gateway = gateway(script, &["--max-runs", "1", "--queue", "100"]);
    let ask = |key: &str| gateway.chat("hi").header("authorization", &format!("Bearer {key}")).open();
    let waiting = |count: u64| until("the requests are queued", || gateway.get("/health").json()["waiting"] == count);
    let first = ask("alice");
    gateway.wait_for_note("pid");
    let many: Vec<_> = (0..20).map(|_| ask("alice")).collect();
    waiting(20);
    let bob = ask("bob");
    waiting(21);
    gateway.leave_note("go");
    let bob = bob.finish().content();
    first.finish().content();
    many.into_iter().for_each(|pending| drop(pending.finish().content()));
    let order = std::fs::read_to_string(gateway.path("seen/order")).unwrap();
    let place = order.lines().position(|run| run == bob).unwrap();
    assert_eq!((order.lines().count(), place), (22, 2), "after the running request and the next one of the queue");
}

#[test]
fn status_is_429_when_a_key_has_its_share_of_the_queue_and_503_when_the_queue_is_full() {
    let gateway = gateway(SLOW, &["--max-runs", "1", "--queue", "2"]);
    let ask = |key: &str| gateway.chat("hi").header("authorization", &format!("Bearer {key}"));
    let first = ask("alice").open();
    gateway.wait_for_note("pid");
    let second = ask("alice").open();
    let waiting = |count: u64| until("the requests are queued", || gateway.get("/health").json()["waiting"] == count);
    waiting(1);
    let refused = ask("alice").send();
    assert_eq!(refused.error(429)["code"], "rate_limit_exceeded");
    assert!(refused.header("retry-after").is_some());
    let _bob = ask("bob").open();
    waiting(2);
    assert_eq!(ask("bob").send().error(503)["code"], "overloaded");
    gateway.leave_note("go");
    assert_eq!((first.finish().content(), second.finish().content()), ("done".to_owned(), "done".to_owned()));
}

#[test]
fn case_20_silent_stream_contains_comments_about_the_current_activity() {
    let tool = r#"{"type":"item.started","item":{"id":"i","type":"command_execution","command":"make","status":"in_progress"}}"#;
    let gateway = TestGateway::new()
        .cli("codex", &format!("echo '{tool}'; await go; codex_answers done"))
        .model("m", json!({"driver": "codex"}))
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until(": running command_execution for ");
    stream.read_until(": keep-alive\n\n");
    gateway.leave_note("go");
    assert_eq!(stream.finish().streamed_text(), "done");
}

#[test]
fn case_53_gateway_recovers_after_it_ran_out_of_file_descriptors() {
    let gateway = gateway_with_spare_files(8);
    let held: Vec<_> = (0..20).map(|_| connect(&gateway)).collect();
    until("the gateway logs the error", || gateway.log().contains("cannot accept a connection"));
    // The kernel has accepted these connections, the gateway has not.
    let waiting: Vec<_> = (0..20).map(|_| ask(&gateway).open()).collect();
    drop(held);
    // Requests that were accepted while no descriptors were left for a run get a 503; the others are served.
    for pending in waiting {
        let reply = pending.finish();
        assert!(reply.status == 200 || reply.error(503)["code"] == "overloaded", "{reply:?}");
    }
    assert_eq!(ask(&gateway).send().content(), "done");
}

#[test]
fn case_54_response_has_retry_after_when_no_process_can_be_started() {
    let gateway = gateway_with_spare_files(10);
    let limit = metric_value(&gateway, "open_files_limit").unwrap();
    let idle = metric_value(&gateway, "open_files").unwrap();
    let mut held = Vec::new();
    let mut refused = None;
    // The last run may still be closing its files, which makes room for more connections. Repeats until a run fails.
    until("no descriptors are left for pipes", || {
        // Leaves room for the request itself and for one more file: a run needs three.
        while metric_value(&gateway, "open_files").is_some_and(|open| open + 2 < limit) {
            held.push(connect(&gateway));
        }
        refused = Some(ask(&gateway).send()).filter(|reply| reply.status != 200);
        refused.is_some()
    });
    let refused = refused.unwrap();
    assert_eq!(refused.error(503)["code"], "overloaded");
    assert_eq!(refused.header("retry-after"), Some("5"));
    drop(held);
    // Requests at the same time may have opened another connection to the database, which stays open: two files.
    until("descriptors are free again", || metric_value(&gateway, "open_files").is_some_and(|open| open <= idle + 2));
    assert_eq!(ask(&gateway).send().content(), "done", "the failure is not counted against the provider");
}

#[test]
fn open_files_limit_is_raised_for_the_gateway_but_not_for_its_children() {
    let gateway = gateway("tell files \"$(ulimit -Sn)\"; codex_answers done", &[]);
    gateway.chat("hi").header("authorization", "Bearer alice").send().content();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.gateway_pid())).unwrap();
    let words: Vec<&str> =
        limits.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert_eq!(words[3], words[4], "the soft limit equals the hard limit");
    let own_limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let own_limit = own_limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap()
        .split_whitespace()
        .nth(3)
        .unwrap()
        .to_owned();
    assert_eq!(gateway.wait_for_note("files").trim(), own_limit);
}

#[test]
fn case_35_port_serves_nothing_but_the_api() {
    let gateway = gateway("codex_answers done", &[]);
    for path in ["/metrics", "/debug", "/debug/pprof", "/admin", "/v1/admin", "/.env", "/server-status"] {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer alice\r\nconnection: close\r\n\r\n",
            gateway.address()
        );
        send_raw(gateway.address(), &request).finish().error(404);
    }
    send_raw(
        gateway.address(),
        &format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", gateway.address()),
    )
    .finish()
    .error(401);
}
