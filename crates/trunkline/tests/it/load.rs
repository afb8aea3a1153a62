//! Many concurrent requests: limits on concurrent runs, and the queue.

use std::fs;
use std::thread;

use serde_json::json;

use crate::observe::{children, until};
use crate::test_gateway::TestGateway;

#[test]
fn never_more_than_max_runs_run_at_once_and_all_requests_are_answered() {
    // Each running CLI has a folder. It counts the folders and records the count in the name of a file. The sleep makes
    // runs overlap.
    let script = "mkdir \"$seen/slot.$$\"; count=$(ls -d \"$seen\"/slot.* | wc -l); touch \"$seen/count.$count\"; \
                  sleep 0.05; rmdir \"$seen/slot.$$\"; codex_answers \"$TRUNKLINE_RUN\"";
    let gateway = TestGateway::new()
        .cli("codex", script)
        .model("m", json!({"driver": "codex"}))
        .args(&["--max-runs", "8"])
        .start();
    let mut runs: Vec<String> = thread::scope(|scope| {
        let requests: Vec<_> = (0..64).map(|_| scope.spawn(|| gateway.chat("hi").send().content())).collect();
        requests.into_iter().map(|request| request.join().unwrap()).collect()
    });
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 64, "each request is a separate run");
    let names =
        fs::read_dir(gateway.path("seen")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let counts: Vec<usize> = names.filter_map(|name| name.strip_prefix("count.")?.trim().parse().ok()).collect();
    let max = counts.into_iter().max().unwrap();
    assert!((2..=8).contains(&max), "{max} at once");
}

#[test]
fn response_has_retry_after_when_the_queue_is_full() {
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
fn queued_request_is_refused_when_the_queue_timeout_passes() {
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
fn keepers_are_reused() {
    let gateway = TestGateway::new().cli("codex", "codex_answers done").model("m", json!({"driver": "codex"})).start();
    for _ in 0..10 {
        assert_eq!(gateway.chat("hi").send().content(), "done");
    }
    // A keeper may still be cleaning up when the next request arrives, so there can be several; four are kept.
    until("at most four keepers are left", || children(gateway.gateway_pid()).len() <= 4);
}

#[test]
fn async_request_is_refused_when_the_queue_is_full() {
    let gateway = TestGateway::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .args(&["--max-runs", "1", "--queue", "1"])
        .start();
    let async_request = || gateway.chat("hi").header("prefer", "respond-async");
    assert_eq!(async_request().send().status, 202);
    gateway.wait_for_note("pid");
    let queued = async_request().send();
    assert_eq!(queued.status, 202, "there was one place in the queue");
    for refused in
        [async_request().send(), async_request().header("idempotency-key", "k").send(), gateway.chat("hi").send()]
    {
        assert_eq!(refused.error(503)["code"], "overloaded");
        assert!(refused.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok()), "{refused:?}");
    }
    let listed = || gateway.get("/v1/runs").json()["data"].as_array().unwrap().len();
    assert_eq!(listed(), 2, "refused requests leave no row");
    gateway.leave_note("go");
    let queued_id = queued.json()["id"].as_str().unwrap().to_owned();
    until("the queued run is finished", || gateway.get(&format!("/v1/runs/{queued_id}")).json()["state"] == "finished");
    let keyed = async_request().header("idempotency-key", "k").send();
    assert_eq!(
        (keyed.status, keyed.header("idempotent-replayed")),
        (202, None),
        "the refused request did not use up the key"
    );
    let id = keyed.json()["id"].as_str().unwrap().to_owned();
    until("the run is finished", || gateway.get(&format!("/v1/runs/{id}")).json()["state"] == "finished");
    assert_eq!(listed(), 3);
}

#[test]
fn async_request_is_refused_when_its_key_has_its_share_of_the_queue() {
    let gateway = TestGateway::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .env("TRUNKLINE_API_KEYS", "alice-key,bob-key")
        .args(&["--max-runs-per-key", "1", "--queue-per-key", "1", "--requests-per-minute-per-key", "3"])
        .start();
    let async_request =
        |key: &str| gateway.chat("hi").header("prefer", "respond-async").header("x-api-key", key).send();
    assert_eq!((async_request("alice-key").status, async_request("alice-key").status), (202, 202));
    for message in ["requests of this key wait already", "requests a minute"] {
        let error = async_request("alice-key").error(429);
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
    }
    assert_eq!(async_request("bob-key").status, 202, "another key has its own share");
    gateway.leave_note("go");
}
