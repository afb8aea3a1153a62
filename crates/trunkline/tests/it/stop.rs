//! How a gateway ends: killed, drained, or told twice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::observe::{children, exists, processes_of, until, until_gone, within};
use crate::test_gateway::TestGateway;

/// It takes no more work, and says so. A connection that it had in the moment of the signal is just closed.
fn refuses(address: &str) -> bool {
    let mut health = String::new();
    let mut socket = TcpStream::connect(address).unwrap();
    let request = format!("GET /health HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let _closed_already = socket.write_all(request.as_bytes()).and_then(|()| socket.read_to_string(&mut health));
    health.starts_with("HTTP/1.1 503") && health.contains("\"draining\"")
}

#[test]
fn case_37_nothing_survives_a_gateway_that_was_killed() {
    let script = "trap '' TERM INT HUP; (env -i setsid sh -c 'echo $$ >\"$1\"; exec sleep 1000' - \"$seen/daemon\" &); \
                  await daemon; tell pid $$; hang";
    let mut gateway = TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start();
    let _whole = gateway.chat("hi").open();
    let _stream = gateway.chat("hi").streamed().open();
    let (pid, daemon) = (gateway.wait_for_pid("pid"), gateway.wait_for_pid("daemon"));
    let keepers = children(gateway.gateway_pid());
    assert!(!keepers.is_empty() && exists(pid) && exists(daemon));
    gateway.kill();
    // Keepers reap their runs, so these are gone without a trace; the keepers themselves are for init to reap.
    within(Duration::from_secs(2), "the run is gone", || !exists(pid) && !exists(daemon));
    let folder = gateway.path("");
    within(Duration::from_secs(2), "the keepers are gone", || processes_of(&folder).is_empty());
}

#[test]
fn case_37_what_outlived_its_gateway_and_its_keeper_is_ended_by_the_next_gateway() {
    let script = "tell pid $$; hang";
    let mut line = TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start();
    let _stream = line.chat("hi").streamed().open();
    let pid = line.wait_for_pid("pid");
    let keepers: Vec<Pid> =
        children(line.gateway_pid()).into_iter().filter_map(|pid| Pid::from_raw(pid as i32)).collect();
    assert!(!keepers.is_empty());
    // Stopped first, so that no keeper sees the gateway go.
    keepers.iter().for_each(|keeper| kill_process(*keeper, Signal::STOP).unwrap());
    line.kill();
    keepers.iter().for_each(|keeper| kill_process(*keeper, Signal::KILL).unwrap());
    line.restart();
    // Killed, and now init's to reap.
    until("the stray is ended", || !processes_of(&line.repo()).contains(&pid));
}

#[test]
fn private_files_of_a_killed_run_are_removed_by_the_next_gateway() {
    let mut gateway = TestGateway::new()
        .cli("claude", "while [ \"$1\" != --append-system-prompt-file ]; do shift; done; tell file \"$2\"; hang")
        .model("m", json!({"driver": "claude", "systemPrompt": "Between us."}))
        .start();
    let _unanswered = gateway.chat("hi").open();
    let file = std::path::PathBuf::from(gateway.wait_for_note("file"));
    gateway.kill();
    assert!(file.exists());
    gateway.restart();
    until("it is gone", || !file.exists());
}

#[test]
fn case_77_the_first_signal_lets_open_answers_end_and_turns_others_away() {
    let mut gateway = TestGateway::new()
        .cli("codex", "codex_says one; await go; codex_answers two")
        .model("m", json!({"driver": "codex"}))
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    gateway.signal(Signal::TERM);
    let address = gateway.address().to_owned();
    until("it accepts no more", || refuses(&address));
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
fn case_77_the_second_signal_ends_it_at_once() {
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
    until("it accepts no more", || refuses(&address));
    assert!(exists(pid));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    assert!(!exists(pid));
}

#[test]
fn case_77_an_answer_that_takes_longer_than_the_drain_ends_in_an_error() {
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
fn an_idle_gateway_ends_at_once() {
    let mut gateway = TestGateway::new().cli("codex", "").start();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

#[test]
fn the_second_signal_leaves_a_cli_no_more_than_its_grace() {
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
    until("it accepts no more", || refuses(&address));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    // Its keeper may end a moment later.
    until_gone(&[pid]);
}

#[test]
fn the_end_of_stdin_ends_a_gateway_that_was_asked_to_heed_it() {
    let mut gateway = TestGateway::new()
        .cli("codex", "codex_says one; await go; codex_answers two")
        .model("m", json!({"driver": "codex"}))
        .args(&["--until-stdin-closes"])
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    gateway.close_stdin();
    let address = gateway.address().to_owned();
    until("it accepts no more", || refuses(&address));
    gateway.leave_note("go");
    assert!(stream.finish().is_done(), "it drains as after a signal");
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

#[test]
fn the_end_of_stdin_is_never_the_second_signal() {
    let mut line = TestGateway::new()
        .cli("codex", "codex_says one; await go; codex_answers two")
        .model("m", json!({"driver": "codex"}))
        .args(&["--until-stdin-closes", "--drain", "1h"])
        .start();
    let mut stream = line.chat("hi").streamed().open();
    stream.read_until("one");
    // Ctrl+C in a terminal ends whoever started the gateway as well.
    line.signal(Signal::INT);
    let address = line.address().to_owned();
    until("it accepts no more", || refuses(&address));
    line.close_stdin();
    line.leave_note("go");
    assert!(stream.finish().is_done());
    assert_eq!(line.wait_for_exit(), Some(0));
}

#[test]
fn other_gateways_do_not_mind_the_end_of_stdin() {
    let mut gateway =
        TestGateway::new().cli("codex", "codex_answers two").model("m", json!({"driver": "codex"})).start();
    gateway.close_stdin();
    assert_eq!(gateway.chat("hi").send().content(), "two");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
}
