//! Many at once: caps, and the queue before them.

use std::fs;
use std::thread;

use serde_json::json;

use crate::observe::{children, until};
use crate::test_gateway::TestGateway;

#[test]
fn sixty_four_calls_are_all_answered_and_never_more_than_eight_run() {
    // A folder for each that runs; what each of them counts is noted by name.
    let script = "mkdir \"$seen/slot.$$\"; count=$(ls -d \"$seen\"/slot.* | wc -l); touch \"$seen/count.$count\"; \
                  sleep 0.05; rmdir \"$seen/slot.$$\"; codex_answers \"$TRUNKLINE_RUN\"";
    let gateway = TestGateway::new()
        .cli("codex", script)
        .model("m", json!({"driver": "codex"}))
        .args(&["--max-runs", "8"])
        .start();
    let mut runs: Vec<String> = thread::scope(|scope| {
        let asked: Vec<_> = (0..64).map(|_| scope.spawn(|| gateway.chat("hi").send().content())).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 64, "each is a run of its own");
    let names =
        fs::read_dir(gateway.path("seen")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let counts: Vec<usize> = names.filter_map(|name| name.strip_prefix("count.")?.trim().parse().ok()).collect();
    let most = counts.into_iter().max().unwrap();
    assert!((2..=8).contains(&most), "{most} at once");
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let gateway = TestGateway::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .args(&["--max-runs", "1", "--queue", "0"])
        .start();
    let first = gateway.chat("hi").open();
    gateway.wait_for_note("pid");
    let refused = gateway.chat("hi").send();
    let error = refused.error(503);
    assert_eq!(error["code"], "overloaded");
    assert!(refused.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok()), "{refused:?}");
    gateway.leave_note("go");
    assert_eq!(first.finish().content(), "done");
}

#[test]
fn a_request_does_not_wait_for_a_slot_for_ever() {
    let gateway = TestGateway::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .args(&["--max-runs", "1", "--queue-timeout", "100ms"])
        .start();
    let first = gateway.chat("hi").open();
    gateway.wait_for_note("pid");
    assert_eq!(gateway.chat("hi").send().error(503)["code"], "overloaded");
    gateway.leave_note("go");
    assert_eq!(first.finish().content(), "done");
}

#[test]
fn one_model_cannot_take_every_slot() {
    let gateway = TestGateway::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .cli("gemini", "replay gemini/ansi-stream-json")
        .model("greedy", json!({"driver": "codex"}))
        .model("other", json!({"driver": "gemini"}))
        .args(&["--max-runs", "2", "--max-runs-per-model", "1"])
        .start();
    let first = gateway.chat("hi").model("greedy").open();
    gateway.wait_for_note("pid");
    let second = gateway.chat("hi").model("greedy").open();
    gateway.chat("hi").model("other").send().content();
    gateway.leave_note("go");
    assert_eq!(first.finish().content(), "done");
    assert_eq!(second.finish().content(), "done");
}

#[test]
fn keepers_are_used_again() {
    let gateway = TestGateway::new().cli("codex", "codex_answers done").model("m", json!({"driver": "codex"})).start();
    for _ in 0..10 {
        assert_eq!(gateway.chat("hi").send().content(), "done");
    }
    // One may still be cleaning up when the next request comes; four are kept.
    until("they are idle", || children(gateway.gateway_pid()).len() <= 4);
}

#[test]
fn async_request_is_refused_when_queue_is_full() {
    let gateway = TestGateway::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .args(&["--max-runs", "1", "--queue", "1"])
        .start();
    let later = || gateway.chat("hi").header("prefer", "respond-async");
    assert_eq!(later().send().status, 202);
    gateway.wait_for_note("pid");
    let waits = later().send();
    assert_eq!(waits.status, 202, "there was one place in the queue");
    for refused in [later().send(), later().header("idempotency-key", "k").send(), gateway.chat("hi").send()] {
        assert_eq!(refused.error(503)["code"], "overloaded");
        assert!(refused.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok()), "{refused:?}");
    }
    let listed = || gateway.get("/v1/runs").json()["data"].as_array().unwrap().len();
    assert_eq!(listed(), 2, "no row is left of those that were refused");
    gateway.leave_note("go");
    let waited = waits.json()["id"].as_str().unwrap().to_owned();
    until("what was promised is done", || gateway.get(&format!("/v1/runs/{waited}")).json()["state"] == "finished");
    let keyed = later().header("idempotency-key", "k").send();
    assert_eq!((keyed.status, keyed.header("idempotent-replayed")), (202, None), "the key was not used up");
    let id = keyed.json()["id"].as_str().unwrap().to_owned();
    until("it is done", || gateway.get(&format!("/v1/runs/{id}")).json()["state"] == "finished");
    assert_eq!(listed(), 3);
}

#[test]
fn async_request_is_refused_when_key_has_its_share() {
    let gateway = TestGateway::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .env("TRUNKLINE_API_KEYS", "alice-key,bob-key")
        .args(&["--max-runs-per-key", "1", "--queue-per-key", "1", "--requests-per-minute-per-key", "3"])
        .start();
    let later = |key: &str| gateway.chat("hi").header("prefer", "respond-async").header("x-api-key", key).send();
    assert_eq!((later("alice-key").status, later("alice-key").status), (202, 202));
    for why in ["requests of this key wait already", "requests a minute"] {
        let error = later("alice-key").error(429);
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
    }
    assert_eq!(later("bob-key").status, 202, "another key has a share of its own");
    gateway.leave_note("go");
}
