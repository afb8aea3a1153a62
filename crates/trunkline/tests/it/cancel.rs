//! Clients that disconnect: no process of their run is left.

use serde_json::json;

use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

/// A CLI with one tool in its process group and one in its own session, as claude and codex start them.
const BUSY_SCRIPT: &str =
    "sleep 1000 & tell tool $!; setsid sleep 1001 & tell apart $!; tell pid $$; codex_says one; wait";

fn busy_gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--grace", "500ms"]).start()
}

fn cli_processes(gateway: &TestGateway) -> [u32; 3] {
    ["pid", "tool", "apart"].map(|name| gateway.wait_for_pid(name))
}

#[test]
fn case_01_run_is_stopped_when_its_client_disconnects_mid_stream() {
    let gateway = busy_gateway(BUSY_SCRIPT);
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let cli_processes = cli_processes(&gateway);
    drop(stream);
    until_gone(&cli_processes);
}

#[test]
fn case_02_run_is_stopped_when_its_client_disconnects_before_the_response() {
    let gateway = busy_gateway(BUSY_SCRIPT);
    let waiting = gateway.chat("hi").open();
    let cli_processes = cli_processes(&gateway);
    drop(waiting);
    until_gone(&cli_processes);
}

#[test]
fn case_39_cli_that_ignores_sigterm_is_killed_when_its_client_disconnects() {
    let gateway = busy_gateway(&format!("trap '' TERM INT; {BUSY_SCRIPT}; hang"));
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let cli_processes = cli_processes(&gateway);
    drop(stream);
    until_gone(&cli_processes);
}

#[test]
fn case_72_queued_request_frees_its_place_when_its_client_disconnects() {
    let gateway = TestGateway::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .args(&["--max-runs", "1", "--queue", "1"])
        .start();
    let first = gateway.chat("hi").open();
    gateway.wait_for_note("pid");
    // Of two requests sent at once, one is queued and the other refused. Repeats until `second` is the queued one.
    let mut second = None;
    until("the queue is full", || {
        second = Some(gateway.chat("hi").open());
        gateway.chat("hi").open().status_soon() == Some(503)
    });
    drop(second);
    // A request that is not refused now has taken the place of `second`.
    until("the queue has a free place", || gateway.chat("hi").open().status_soon().is_none());
    gateway.leave_note("go");
    assert_eq!(first.finish().content(), "done");
    assert_eq!(gateway.chat("hi").send().content(), "done");
}

#[test]
fn case_39_cli_stopped_by_sigstop_is_killed_when_its_client_disconnects() {
    let gateway = busy_gateway("codex_says one; tell pid $$; kill -STOP $$; hang");
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let pid = gateway.wait_for_pid("pid");
    drop(stream);
    until_gone(&[pid]);
}
