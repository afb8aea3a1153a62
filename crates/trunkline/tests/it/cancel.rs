//! Clients that hang up: nothing of their run is left.

use serde_json::json;

use crate::line::Line;
use crate::look::{all_gone, until};

/// Has a tool in its group and another in a session of its own, as claude's and codex's are.
const BUSY: &str = "sleep 1000 & tell tool $!; setsid sleep 1001 & tell apart $!; tell pid $$; codex_says one; wait";

fn busy(script: &str) -> Line {
    Line::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--grace", "500ms"]).start()
}

fn family(line: &Line) -> [u32; 3] {
    ["pid", "tool", "apart"].map(|name| line.told_pid(name))
}

#[test]
fn case_01_a_client_that_hangs_up_in_a_stream_stops_its_run() {
    let line = busy(BUSY);
    let mut stream = line.chat("hi").streamed().open();
    stream.until("one");
    let family = family(&line);
    drop(stream);
    all_gone(&family);
}

#[test]
fn case_02_a_client_that_hangs_up_before_the_answer_stops_its_run() {
    let line = busy(BUSY);
    let waiting = line.chat("hi").open();
    let family = family(&line);
    drop(waiting);
    all_gone(&family);
}

#[test]
fn case_39_a_run_that_ignores_signals_is_killed_when_its_client_hangs_up() {
    let line = busy(&format!("trap '' TERM INT; {BUSY}; hang"));
    let mut stream = line.chat("hi").streamed().open();
    stream.until("one");
    let family = family(&line);
    drop(stream);
    all_gone(&family);
}

#[test]
fn case_72_a_client_that_hangs_up_leaves_the_queue() {
    let line = Line::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .args(&["--max-runs", "1", "--queue", "1"])
        .start();
    let first = line.chat("hi").open();
    line.told("pid");
    // Of two that come at once, one waits and the other is refused; the one that waits shall be the second.
    let mut second = None;
    until("the queue is full", || {
        second = Some(line.chat("hi").open());
        line.chat("hi").open().status_soon() == Some(503)
    });
    drop(second);
    // Whoever is not refused now has the place of the second.
    until("there is a place", || line.chat("hi").open().status_soon().is_none());
    line.tell("go");
    assert_eq!(first.finish().content(), "done");
    assert_eq!(line.chat("hi").send().content(), "done");
}

#[test]
fn case_39_a_run_that_was_stopped_by_a_signal_can_be_ended_too() {
    let line = busy("codex_says one; tell pid $$; kill -STOP $$; hang");
    let mut stream = line.chat("hi").streamed().open();
    stream.until("one");
    let pid = line.told_pid("pid");
    drop(stream);
    all_gone(&[pid]);
}
