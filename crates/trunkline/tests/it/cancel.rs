//! Clients that hang up: nothing of their run is left.

use serde_json::json;

use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

/// Has a tool in its group and another in a session of its own, as claude's and codex's are.
const BUSY: &str = "sleep 1000 & tell tool $!; setsid sleep 1001 & tell apart $!; tell pid $$; codex_says one; wait";

fn busy(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--grace", "500ms"]).start()
}

fn family(gateway: &TestGateway) -> [u32; 3] {
    ["pid", "tool", "apart"].map(|name| gateway.wait_for_pid(name))
}

#[test]
fn case_01_a_client_that_hangs_up_in_a_stream_stops_its_run() {
    let gateway = busy(BUSY);
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let family = family(&gateway);
    drop(stream);
    until_gone(&family);
}

#[test]
fn case_02_a_client_that_hangs_up_before_the_answer_stops_its_run() {
    let gateway = busy(BUSY);
    let waiting = gateway.chat("hi").open();
    let family = family(&gateway);
    drop(waiting);
    until_gone(&family);
}

#[test]
fn case_39_a_run_that_ignores_signals_is_killed_when_its_client_hangs_up() {
    let gateway = busy(&format!("trap '' TERM INT; {BUSY}; hang"));
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let family = family(&gateway);
    drop(stream);
    until_gone(&family);
}

#[test]
fn case_72_a_client_that_hangs_up_leaves_the_queue() {
    let gateway = TestGateway::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .args(&["--max-runs", "1", "--queue", "1"])
        .start();
    let first = gateway.chat("hi").open();
    gateway.wait_for_note("pid");
    // Of two that come at once, one waits and the other is refused; the one that waits shall be the second.
    let mut second = None;
    until("the queue is full", || {
        second = Some(gateway.chat("hi").open());
        gateway.chat("hi").open().status_soon() == Some(503)
    });
    drop(second);
    // Whoever is not refused now has the place of the second.
    until("there is a place", || gateway.chat("hi").open().status_soon().is_none());
    gateway.leave_note("go");
    assert_eq!(first.finish().content(), "done");
    assert_eq!(gateway.chat("hi").send().content(), "done");
}

#[test]
fn case_39_a_run_that_was_stopped_by_a_signal_can_be_ended_too() {
    let gateway = busy("codex_says one; tell pid $$; kill -STOP $$; hang");
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let pid = gateway.wait_for_pid("pid");
    drop(stream);
    until_gone(&[pid]);
}
