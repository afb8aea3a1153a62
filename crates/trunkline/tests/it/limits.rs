//! What a key, a model and the gateway are allowed, and what is said to those who want more.

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

/// A gateway that may open only this many files more than it has open after a run.
fn short_of_files(more: u64) -> TestGateway {
    let mut line = gateway("codex_answers done", &["--metrics", "127.0.0.1:0"]);
    ask(&line).send().content();
    let open = metric_value(&line, "open_files").unwrap();
    line.kill();
    let line = line.open_files(open + more).start();
    ask(&line).send().content();
    line
}

fn ask(gateway: &TestGateway) -> RequestBuilder {
    gateway.chat("hi").header("authorization", "Bearer alice")
}

fn connected(gateway: &TestGateway) -> TcpStream {
    TcpStream::connect(gateway.address()).unwrap()
}

#[test]
fn case_23_wrong_keys_are_slowed_down_and_right_ones_are_not() {
    let line = gateway("codex_answers done", &[]);
    let with = |key: &str| line.chat("hi").header("authorization", &format!("Bearer {key}")).send();
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
    assert_eq!(line.get("/health").status, 200);
}

#[test]
fn a_keys_requests_in_a_minute() {
    let line = gateway("codex_answers done", &["--requests-per-minute-per-key", "2"]);
    let with = |key: &str| line.chat("hi").header("authorization", &format!("Bearer {key}")).send();
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
fn a_key_of_the_file_has_limits_of_its_own() {
    // The digests of `alice` and `bob`.
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
fn case_70_a_key_that_waits_with_many_does_not_delay_anothers_first() {
    let script = "echo \"$TRUNKLINE_RUN\" >>\"$seen/order\"; tell pid $$; await go; codex_answers \"$TRUNKLINE_RUN\"";
    let line = gateway(script, &["--max-runs", "1", "--queue", "100"]);
    let ask = |key: &str| line.chat("hi").header("authorization", &format!("Bearer {key}")).open();
    let waiting = |count: u64| until("they wait", || line.get("/health").json()["waiting"] == count);
    let first = ask("alice");
    line.wait_for_note("pid");
    let many: Vec<_> = (0..20).map(|_| ask("alice")).collect();
    waiting(20);
    let bob = ask("bob");
    waiting(21);
    line.leave_note("go");
    let bob = bob.finish().content();
    first.finish().content();
    many.into_iter().for_each(|asked| drop(asked.finish().content()));
    let order = std::fs::read_to_string(line.path("seen/order")).unwrap();
    let place = order.lines().position(|run| run == bob).unwrap();
    assert_eq!((order.lines().count(), place), (22, 2), "after the one that ran and the one that was next");
}

#[test]
fn a_key_that_has_its_share_of_the_queue_is_told_429_and_a_full_gateway_503() {
    let line = gateway(SLOW, &["--max-runs", "1", "--queue", "2"]);
    let ask = |key: &str| line.chat("hi").header("authorization", &format!("Bearer {key}"));
    let first = ask("alice").open();
    line.wait_for_note("pid");
    let second = ask("alice").open();
    let waiting = |count: u64| until("they wait", || line.get("/health").json()["waiting"] == count);
    waiting(1);
    let refused = ask("alice").send();
    assert_eq!(refused.error(429)["code"], "rate_limit_exceeded");
    assert!(refused.header("retry-after").is_some());
    let _bob = ask("bob").open();
    waiting(2);
    assert_eq!(ask("bob").send().error(503)["code"], "overloaded");
    line.leave_note("go");
    assert_eq!((first.finish().content(), second.finish().content()), ("done".to_owned(), "done".to_owned()));
}

#[test]
fn case_20_a_silent_stream_says_what_it_waits_for() {
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
fn case_53_a_gateway_out_of_descriptors_goes_on_when_there_are_some() {
    let gateway = short_of_files(8);
    let held: Vec<_> = (0..20).map(|_| connected(&gateway)).collect();
    until("it notices", || gateway.log().contains("cannot accept a connection"));
    // Accepted by the kernel, and by nobody else.
    let waiting: Vec<_> = (0..20).map(|_| ask(&gateway).open()).collect();
    drop(held);
    // Who came in while there was nothing left for a run is told to come back; the others are served.
    for asked in waiting {
        let reply = asked.finish();
        assert!(reply.status == 200 || reply.error(503)["code"] == "overloaded", "{reply:?}");
    }
    assert_eq!(ask(&gateway).send().content(), "done");
}

#[test]
fn case_54_a_machine_that_can_start_no_process_says_when_to_come_back() {
    let line = short_of_files(10);
    let limit = metric_value(&line, "open_files_limit").unwrap();
    let mut held = Vec::new();
    let mut refused = None;
    // What a run has just left may still be closed: then there is room for another connection.
    until("there is nothing left for pipes", || {
        // Room for the request itself and for two files more.
        while metric_value(&line, "open_files").is_some_and(|open| open + 3 < limit) {
            held.push(connected(&line));
        }
        refused = Some(ask(&line).send()).filter(|reply| reply.status != 200);
        refused.is_some()
    });
    let refused = refused.unwrap();
    assert_eq!(refused.error(503)["code"], "overloaded");
    assert_eq!(refused.header("retry-after"), Some("5"));
    drop(held);
    until("there is room again", || metric_value(&line, "open_files").is_some_and(|open| open + 8 < limit));
    assert_eq!(ask(&line).send().content(), "done", "its provider is not blamed");
}

#[test]
fn the_limit_of_open_files_is_raised_for_us_and_not_for_what_we_start() {
    let line = gateway("tell files \"$(ulimit -Sn)\"; codex_answers done", &[]);
    line.chat("hi").header("authorization", "Bearer alice").send().content();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", line.gateway_pid())).unwrap();
    let words: Vec<&str> =
        limits.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert_eq!(words[3], words[4], "as far as it goes");
    let ours = std::fs::read_to_string("/proc/self/limits").unwrap();
    let ours = ours
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap()
        .split_whitespace()
        .nth(3)
        .unwrap()
        .to_owned();
    assert_eq!(line.wait_for_note("files").trim(), ours);
}

#[test]
fn case_35_nothing_but_the_api_is_on_its_port() {
    let line = gateway("codex_answers done", &[]);
    for path in ["/metrics", "/debug", "/debug/pprof", "/admin", "/v1/admin", "/.env", "/server-status"] {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer alice\r\nconnection: close\r\n\r\n",
            line.address()
        );
        send_raw(line.address(), &request).finish().error(404);
    }
    send_raw(
        line.address(),
        &format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", line.address()),
    )
    .finish()
    .error(401);
}
