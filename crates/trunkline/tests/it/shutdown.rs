//! Shutdown of a gateway: killed, drained, or stopped by a second signal.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::observe::{children, exists, processes_of, until, until_gone, within};
use crate::test_gateway::TestGateway;

/// Whether the gateway reports that it is draining. A connection that was open when the signal came may just be closed.
fn is_draining(address: &str) -> bool {
    let mut health = String::new();
    let mut socket = TcpStream::connect(address).unwrap();
    let request = format!("GET /health HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    // An error means that the gateway has closed the connection.
    let _ = socket.write_all(request.as_bytes()).and_then(|()| socket.read_to_string(&mut health));
    health.starts_with("HTTP/1.1 503") && health.contains("\"draining\"")
}

#[test]
fn case_37_no_process_survives_when_gateway_is_killed() {
    let script = "trap '' TERM INT HUP; (env -i setsid sh -c 'echo $$ >\"$1\"; exec sleep 1000' - \"$seen/daemon\" &); \
                  await daemon; tell pid $$; hang";
    let mut gateway = TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start();
    let _whole = gateway.chat("hi").open();
    let _stream = gateway.chat("hi").streamed().open();
    let (pid, daemon) = (gateway.wait_for_pid("pid"), gateway.wait_for_pid("daemon"));
    let keepers = children(gateway.gateway_pid());
    assert!(!keepers.is_empty() && exists(pid) && exists(daemon));
    gateway.kill();
    // Keepers reap their runs, so no zombies of those are left; init reaps the keepers themselves.
    within(Duration::from_secs(2), "the run is gone", || !exists(pid) && !exists(daemon));
    let folder = gateway.path("");
    within(Duration::from_secs(2), "the keepers are gone", || processes_of(&folder).is_empty());
}

#[test]
fn case_37_next_gateway_kills_processes_when_gateway_and_keeper_were_killed() {
    let script = "tell pid $$; hang";
    let mut gateway = TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start();
    let _stream = gateway.chat("hi").streamed().open();
    let pid = gateway.wait_for_pid("pid");
    let keepers: Vec<Pid> =
        children(gateway.gateway_pid()).into_iter().filter_map(|pid| Pid::from_raw(pid as i32)).collect();
    assert!(!keepers.is_empty());
    // Stopped first, so that no keeper notices the end of the gateway.
    keepers.iter().for_each(|keeper| kill_process(*keeper, Signal::STOP).unwrap());
    gateway.kill();
    keepers.iter().for_each(|keeper| kill_process(*keeper, Signal::KILL).unwrap());
    gateway.restart();
    // It may remain as a zombie until init reaps it.
    until("the stray process is killed", || !processes_of(&gateway.repo()).contains(&pid));
}

#[test]
fn next_gateway_removes_private_files_when_a_run_was_killed() {
    let mut gateway = TestGateway::new()
        .cli("claude", "while [ \"$1\" != --append-system-prompt-file ]; do shift; done; tell file \"$2\"; hang")
        .model("m", json!({"driver": "claude", "systemPrompt": "Between us."}))
        .start();
    let _unanswered = gateway.chat("hi").open();
    let file = std::path::PathBuf::from(gateway.wait_for_note("file"));
    gateway.kill();
    assert!(file.exists());
    gateway.restart();
    until("the file is removed", || !file.exists());
}

#[test]
fn case_77_first_signal_lets_open_requests_finish_and_rejects_new_ones() {
    let mut gateway = TestGateway::new()
        .cli("codex", "codex_says one; await go; codex_answers two")
        .model("m", json!({"driver": "codex"}))
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    gateway.signal(Signal::TERM);
    let address = gateway.address().to_owned();
    until("the gateway drains", || is_draining(&address));
    let late = gateway.chat("hi").send();
    assert_eq!(late.error(503)["code"], "shutting_down");
    assert!(late.header("retry-after").is_some(), "{late:?}");
    gateway.leave_note("go");
    let reply = stream.finish();
    assert!(reply.is_done() && reply.streamed_text().ends_with("two"), "{}", reply.body);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn case_77_gateway_stops_at_once_on_the_second_signal() {
    let mut gateway = TestGateway::new()
        .cli("codex", "codex_says one; tell pid $$; hang")
        .model("m", json!({"driver": "codex"}))
        .args(&["--drain", "1h"])
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let pid = gateway.wait_for_pid("pid");
    gateway.signal(Signal::TERM);
    let address = gateway.address().to_owned();
    until("the gateway drains", || is_draining(&address));
    assert!(exists(pid));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    assert!(!exists(pid));
}

#[test]
fn case_77_stream_ends_with_an_error_when_drain_times_out() {
    let mut gateway = TestGateway::new()
        .cli("codex", "codex_says one; tell pid $$; hang")
        .model("m", json!({"driver": "codex"}))
        .args(&["--drain", "100ms"])
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    gateway.signal(Signal::INT);
    let reply = stream.finish();
    assert_eq!(reply.frames().last().unwrap()["error"]["code"], "shutting_down");
    assert!(!reply.is_done());
    assert_eq!(gateway.wait_for_exit(), Some(0));
    assert!(!exists(gateway.wait_for_pid("pid")));
}

#[test]
fn gateway_stops_at_once_when_idle() {
    let mut gateway = TestGateway::new().cli("codex", "").start();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

#[test]
fn cli_is_killed_after_its_grace_on_the_second_signal() {
    let mut gateway = TestGateway::new()
        .cli("codex", "trap '' TERM INT HUP; codex_says one; tell pid $$; hang")
        .model("m", json!({"driver": "codex"}))
        .args(&["--drain", "1h", "--grace", "300ms"])
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let pid = gateway.wait_for_pid("pid");
    gateway.signal(Signal::TERM);
    let address = gateway.address().to_owned();
    until("the gateway drains", || is_draining(&address));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    // The CLI may be killed a moment after the gateway has exited, by its keeper.
    until_gone(&[pid]);
}

#[test]
fn gateway_drains_when_stdin_closes_and_until_stdin_closes_is_set() {
    let mut gateway = TestGateway::new()
        .cli("codex", "codex_says one; await go; codex_answers two")
        .model("m", json!({"driver": "codex"}))
        .args(&["--until-stdin-closes"])
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    gateway.close_stdin();
    let address = gateway.address().to_owned();
    until("the gateway drains", || is_draining(&address));
    gateway.leave_note("go");
    assert!(stream.finish().is_done(), "the gateway drains as after a signal");
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

#[test]
fn end_of_stdin_does_not_count_as_the_second_signal() {
    let mut gateway = TestGateway::new()
        .cli("codex", "codex_says one; await go; codex_answers two")
        .model("m", json!({"driver": "codex"}))
        .args(&["--until-stdin-closes", "--drain", "1h"])
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    // Ctrl+C in a terminal also ends the parent of the gateway, which closes its stdin.
    gateway.signal(Signal::INT);
    let address = gateway.address().to_owned();
    until("the gateway drains", || is_draining(&address));
    gateway.close_stdin();
    gateway.leave_note("go");
    assert!(stream.finish().is_done());
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

#[test]
fn end_of_stdin_is_ignored_when_until_stdin_closes_is_not_set() {
    let mut gateway =
        TestGateway::new().cli("codex", "codex_answers two").model("m", json!({"driver": "codex"})).start();
    gateway.close_stdin();
    assert_eq!(gateway.chat("hi").send().content(), "two");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
}
