//! Requests that a client repeats because it gave up waiting, or because it got an error.

use serde_json::json;

use crate::http::RequestBuilder;
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

const RETRY_COUNT: &str = "x-stainless-retry-count";

/// With a limit below the tolerance, a client that disconnects at any time has given up waiting.
const SHORT_PATIENCE: (&str, &str) = ("x-stainless-read-timeout", "0.5");

const LONG_PATIENCE: (&str, &str) = ("x-stainless-timeout", "600");

/// Counts its runs, and answers when the test says so.
const SLOW: &str = "counted >/dev/null; tell pid $$; await go; codex_answers done";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new()
        .cli("codex", script)
        .model("m", json!({"driver": "codex"}))
        .model("separate", json!({"driver": "codex", "joinRepeats": false}))
}

fn asking(gateway: &TestGateway, patience: (&str, &str)) -> RequestBuilder {
    gateway.chat("hi").header(patience.0, patience.1)
}

/// Number of times that the CLI was started.
fn runs(gateway: &TestGateway) -> usize {
    std::fs::read_to_string(gateway.path("seen/codex.runs")).map_or(0, |text| text.lines().count())
}

/// Waits until the gateway has noticed that all clients disconnected.
fn until_disconnected(gateway: &TestGateway) {
    let (_, port) = gateway.address().rsplit_once(':').unwrap();
    let port = format!(":{:04X}", port.parse::<u16>().unwrap());
    until("no connection is open", || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        sockets.lines().skip(1).all(|socket| {
            let columns: Vec<&str> = socket.split_whitespace().collect();
            // The state 01 is an open connection, and 08 one that only the client has closed.
            !columns[1].ends_with(&port) || !["01", "08"].contains(&columns[3])
        })
    });
}

#[test]
fn client_that_gave_up_waiting_gets_the_answer_of_its_run_when_it_asks_again() {
    for (streamed, retry) in [(false, "1"), (false, "0"), (true, "2")] {
        let gateway = gateway(SLOW).start();
        let ask = || {
            let request = asking(&gateway, SHORT_PATIENCE);
            if streamed { request.streamed() } else { request }
        };
        let first = ask().open();
        gateway.wait_for_note("pid");
        drop(first);
        let second = ask().header(RETRY_COUNT, "1").open();
        drop(second);
        until_disconnected(&gateway);
        let third = ask().header(RETRY_COUNT, retry).open();
        gateway.leave_note("go");
        let reply = third.finish();
        let text = if streamed { reply.streamed_text() } else { reply.content() };
        assert_eq!(text, "done");
        assert_eq!(runs(&gateway), 1, "streamed: {streamed}");
        // The client has its answer, so the same request is a new question.
        let next = ask().send();
        assert_eq!(next.status, 200);
        assert_eq!(runs(&gateway), 2, "streamed: {streamed}");
        // A retry of the SDK says that the answer was lost.
        let lost = ask().header(RETRY_COUNT, "1").send();
        assert_eq!(lost.header("x-trunkline-run"), next.header("x-trunkline-run"));
        assert_eq!(lost.header("idempotent-replayed"), Some("true"));
        assert_eq!(runs(&gateway), 2, "streamed: {streamed}");
    }
}

#[test]
fn run_is_cancelled_when_its_client_does_not_ask_again_in_time() {
    let gateway = gateway("tell pid $$; hang").args(&["--repeat-wait", "300ms", "--grace", "500ms"]).start();
    let first = asking(&gateway, SHORT_PATIENCE).open();
    let pid = gateway.wait_for_pid("pid");
    drop(first);
    until_gone(&[pid]);
    until("the run is cancelled", || gateway.get("/v1/runs").json()["data"][0]["state"] == "cancelled");
}

#[test]
fn client_that_repeats_by_itself_gets_the_answer_of_its_run_though_it_announces_no_time() {
    let gateway = gateway(SLOW).start();
    let ask = |count: &str| gateway.chat("hi").header(RETRY_COUNT, count);
    let first = ask("0").open();
    gateway.wait_for_note("pid");
    drop(first);
    until_disconnected(&gateway);
    let second = ask("1").open();
    gateway.leave_note("go");
    assert_eq!(second.finish().content(), "done");
    assert_eq!(runs(&gateway), 1);
}

#[test]
fn client_that_disconnects_before_its_time_cancels_its_run() {
    let gateway = gateway(SLOW).args(&["--grace", "500ms"]).start();
    for patience in [Some(LONG_PATIENCE), None] {
        let ask = || patience.map_or_else(|| gateway.chat("hi"), |patience| asking(&gateway, patience));
        let before = runs(&gateway);
        let first = ask().open();
        until("the CLI runs", || runs(&gateway) == before + 1);
        let pid = gateway.wait_for_pid("pid");
        drop(first);
        until_gone(&[pid]);
        gateway.leave_note("go");
        // There is no answer to wait for, so this is a new run.
        assert_eq!(ask().header(RETRY_COUNT, "1").send().content(), "done");
        assert_eq!(runs(&gateway), before + 2);
        std::fs::remove_file(gateway.path("seen/go")).unwrap();
        std::fs::remove_file(gateway.path("seen/pid")).unwrap();
    }
}

#[test]
fn equal_requests_at_the_same_time_are_two_runs() {
    let gateway = gateway(SLOW).start();
    let both = [gateway.chat("hi").open(), gateway.chat("hi").open()];
    until("both run", || runs(&gateway) == 2);
    gateway.leave_note("go");
    for reply in both {
        assert_eq!(reply.finish().content(), "done");
    }
}

#[test]
fn request_for_a_detached_run_whose_client_left_joins_the_run() {
    let gateway = gateway(SLOW).start();
    let ask = || gateway.chat("hi").header("x-trunkline-on-disconnect", "detach");
    let first = ask().open();
    gateway.wait_for_note("pid");
    drop(first);
    until("the gateway has seen the client leave", || {
        // An equal request of a client that is still connected would be a second run.
        let other = ask().header(RETRY_COUNT, "1").open();
        drop(other);
        runs(&gateway) == 1
    });
    let second = ask().header(RETRY_COUNT, "1").open();
    gateway.leave_note("go");
    assert_eq!(second.finish().content(), "done");
    assert_eq!(runs(&gateway), 1);
}

#[test]
fn failure_that_a_repetition_cannot_cure_is_answered_without_another_run() {
    let script = "counted >/dev/null; printf '%s\\n' '{\"type\":\"turn.failed\",\"error\":{\"message\":\"401 Unauthorized: invalid API key\"}}'; exit 1";
    let gateway = gateway(script).start();
    let first = gateway.chat("hi").send();
    assert_eq!(first.error(500)["code"], "authentication");
    let second = gateway.chat("hi").send();
    assert_eq!(second.error(500)["message"], first.error(500)["message"]);
    assert_eq!(second.json()["trunkline"]["run"], first.json()["trunkline"]["run"]);
    assert!(second.error(500)["hint"].as_str().unwrap().contains("runs again after 30 s"), "{second:?}");
    assert_eq!(runs(&gateway), 1);
    for _ in 0..2 {
        assert_eq!(gateway.chat("another question").streamed().send().error(500)["code"], "authentication");
        assert_eq!(runs(&gateway), 2);
    }
    // A model can switch all of this off.
    for count in 3..5 {
        assert_eq!(gateway.chat("hi").model("separate").header(RETRY_COUNT, "1").send().status, 500);
        assert_eq!(runs(&gateway), count);
    }
}

#[test]
fn failure_that_may_pass_is_tried_again() {
    let gateway = gateway("counted >/dev/null; exit 1").start();
    for count in 1..3 {
        assert_eq!(gateway.chat("hi").header(RETRY_COUNT, "1").send().status, 500);
        assert_eq!(runs(&gateway), count);
    }
}
