//! Many at once: caps, and the queue before them.

use std::fs;
use std::thread;

use serde_json::json;

use crate::line::Line;
use crate::look::{children, until};

#[test]
fn sixty_four_calls_are_all_answered_and_never_more_than_eight_run() {
    // A folder for each that runs; what each of them counts is noted by name.
    let script = "mkdir \"$seen/slot.$$\"; count=$(ls -d \"$seen\"/slot.* | wc -l); touch \"$seen/count.$count\"; \
                  sleep 0.05; rmdir \"$seen/slot.$$\"; codex_answers \"$TRUNKLINE_RUN\"";
    let line =
        Line::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--max-runs", "8"]).start();
    let mut runs: Vec<String> = thread::scope(|scope| {
        let asked: Vec<_> = (0..64).map(|_| scope.spawn(|| line.chat("hi").send().content())).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 64, "each is a run of its own");
    let names = fs::read_dir(line.path("seen")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let counts: Vec<usize> = names.filter_map(|name| name.strip_prefix("count.")?.trim().parse().ok()).collect();
    let most = counts.into_iter().max().unwrap();
    assert!((2..=8).contains(&most), "{most} at once");
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let line = Line::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .args(&["--max-runs", "1", "--queue", "0"])
        .start();
    let first = line.chat("hi").open();
    line.told("pid");
    let refused = line.chat("hi").send();
    let error = refused.error(503);
    assert_eq!(error["code"], "overloaded");
    assert!(refused.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok()), "{refused:?}");
    line.tell("go");
    assert_eq!(first.finish().content(), "done");
}

#[test]
fn a_request_does_not_wait_for_a_slot_for_ever() {
    let line = Line::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .args(&["--max-runs", "1", "--queue-timeout", "100ms"])
        .start();
    let first = line.chat("hi").open();
    line.told("pid");
    assert_eq!(line.chat("hi").send().error(503)["code"], "overloaded");
    line.tell("go");
    assert_eq!(first.finish().content(), "done");
}

#[test]
fn one_model_cannot_take_every_slot() {
    let line = Line::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .cli("gemini", "replay gemini/ansi-stream-json")
        .model("greedy", json!({"driver": "codex"}))
        .model("other", json!({"driver": "gemini"}))
        .args(&["--max-runs", "2", "--max-runs-per-model", "1"])
        .start();
    let first = line.chat("hi").model("greedy").open();
    line.told("pid");
    let second = line.chat("hi").model("greedy").open();
    line.chat("hi").model("other").send().content();
    line.tell("go");
    assert_eq!(first.finish().content(), "done");
    assert_eq!(second.finish().content(), "done");
}

#[test]
fn keepers_are_used_again() {
    let line = Line::new().cli("codex", "codex_answers done").model("m", json!({"driver": "codex"})).start();
    for _ in 0..10 {
        assert_eq!(line.chat("hi").send().content(), "done");
    }
    // One may still be cleaning up when the next request comes; four are kept.
    until("they are idle", || children(line.gateway_pid()).len() <= 4);
}
