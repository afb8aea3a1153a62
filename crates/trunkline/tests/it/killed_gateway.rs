//! A gateway that is killed: its runs are marked as interrupted, their logs get a final event, and their work is kept.

use std::fs;

use serde_json::{Value, json};

use crate::database::Database;
use crate::http::Reply;
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

/// Starts a run, kills the gateway in the given phase and restarts it. Checks that all runs are interrupted, and
/// returns them.
fn kill_and_restart(script: &str, phase: &str) -> (TestGateway, Vec<Value>) {
    let mut gateway = TestGateway::new()
        .cli("codex", script)
        .model("m", json!({"driver": "codex", "worktree": true}))
        .args(&["--max-runs", "1"])
        .start();
    let waiting = gateway.chat(phase).streamed().open();
    gateway.wait_for_note("pid");
    let queued = (phase == "queued").then(|| gateway.chat("waits").open());
    if queued.is_some() {
        until("the second run is queued", || runs(&gateway).len() == 2);
    }
    if phase == "in a tool" {
        until("the tool runs", || {
            runs(&gateway)[0]["state"] == "running" && run_log(&gateway).contains("tool_started")
        });
    }
    gateway.kill();
    drop((waiting, queued));
    until_gone(&[gateway.wait_for_pid("pid")]);
    gateway.restart();
    until("the runs are marked as interrupted", || runs(&gateway).iter().all(|run| run["state"] == "interrupted"));
    let runs = runs(&gateway);
    for run in &runs {
        let id = run["id"].as_str().unwrap();
        assert_eq!((&run["error"]["category"], run["ended"].is_u64()), (&json!("server"), true), "{phase}: {run}");
        let frames = events(&gateway, id).frames();
        assert!(frames.iter().enumerate().all(|(at, frame)| frame["seq"] == at), "{phase}: {frames:?}");
        let last = &frames.last().unwrap()["event"];
        assert_eq!(last["type"], "failed", "{phase}: {frames:?}");
        assert!(last["message"].as_str().unwrap().contains("interrupted"), "{phase}: {last}");
    }
    until("no worktree is left", || gateway.git(&["worktree", "list"]).lines().count() == 1);
    (gateway, runs)
}

fn runs(gateway: &TestGateway) -> Vec<Value> {
    gateway.get("/v1/runs").json()["data"].as_array().unwrap().clone()
}

/// The log of the only run, from disk.
fn run_log(gateway: &TestGateway) -> String {
    let logs = fs::read_dir(gateway.path("state/log")).unwrap().map(|log| log.unwrap().path());
    logs.filter_map(|log| fs::read_to_string(log).ok()).collect()
}

fn events(gateway: &TestGateway, id: &str) -> Reply {
    gateway.get(&format!("/v1/runs/{id}/events"))
}

#[test]
fn case_37_run_is_interrupted_when_the_gateway_is_killed_before_any_output() {
    let (_gateway, runs) = kill_and_restart("tell pid $$; hang", "starting");
    assert_eq!(runs.len(), 1);
}

#[test]
fn case_37_queued_run_is_interrupted_when_the_gateway_is_killed() {
    let (_gateway, runs) = kill_and_restart("tell pid $$; hang", "queued");
    assert_eq!(runs.len(), 2);
}

#[test]
fn case_61_work_is_on_a_branch_when_the_gateway_is_killed_mid_stream() {
    let (gateway, runs) = kill_and_restart("echo work >made.txt; codex_says one; tell pid $$; hang", "streaming");
    let workspace = &runs[0]["workspace"];
    assert_eq!(workspace["files_changed"], 1, "{runs:?}");
    let branch = workspace["branch"].as_str().unwrap();
    assert_eq!(gateway.git(&["show", &format!("{branch}:made.txt")]), "work");
    let diff = gateway.get(&format!("/v1/runs/{}/diff", runs[0]["id"].as_str().unwrap()));
    assert_eq!(diff.header("content-type"), Some("text/x-diff"));
    assert!(diff.body.contains("+++ b/made.txt") && diff.body.contains("+work"), "{diff:?}");
}

#[test]
fn case_37_run_is_interrupted_when_the_gateway_is_killed_while_a_tool_runs() {
    let tool = r#"printf '{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"make","status":"in_progress"}}\n'"#;
    let (gateway, runs) = kill_and_restart(&format!("{tool}; tell pid $$; hang"), "in a tool");
    let frames = events(&gateway, runs[0]["id"].as_str().unwrap()).frames();
    assert!(frames.iter().any(|frame| frame["event"]["type"] == "tool_started"), "{frames:?}");
}

#[test]
fn finished_run_stays_finished_when_the_gateway_is_killed() {
    let mut gateway =
        TestGateway::new().cli("codex", "codex_answers done").model("m", json!({"driver": "codex"})).start();
    let reply = gateway.chat("hi").send();
    assert_eq!(reply.content(), "done");
    until("the run is stored", || runs(&gateway)[0]["state"] == "finished");
    gateway.kill();
    gateway.restart();
    assert_eq!(runs(&gateway)[0]["state"], "finished");
    let frames = events(&gateway, reply.header("x-trunkline-run").unwrap()).frames();
    assert_eq!(frames.last().unwrap()["event"]["content"], "done");
}

#[test]
fn session_continues_with_its_work_when_the_gateway_was_killed_mid_turn() {
    let script = "printf '{\"type\":\"thread.started\",\"thread_id\":\"0199a213-81c0-7800-8aa1-bbab2a035a53\"}\\n'
        case $(counted) in
        1) codex_answers first ;;
        2) echo half >half.txt; tell pid $$; hang ;;
        *) codex_answers \"$(cat half.txt)\" ;;
        esac";
    let mut gateway =
        TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex", "worktree": true})).start();
    let first = gateway.chat("hi").send();
    assert_eq!(first.content(), "first");
    let session = first.header("x-trunkline-session").unwrap().to_owned();
    let second = gateway.chat("go on").header("x-trunkline-session", &session).open();
    gateway.wait_for_note("pid");
    gateway.kill();
    drop(second);
    gateway.restart();
    until("no worktree is left", || gateway.git(&["worktree", "list"]).lines().count() == 1);
    until("the run is marked as interrupted", || runs(&gateway).iter().any(|run| run["state"] == "interrupted"));
    let third = gateway.chat("and on").header("x-trunkline-session", &session).send();
    assert_eq!(third.content(), "half");
}

#[test]
fn run_is_interrupted_when_its_gateway_was_in_another_pid_namespace() {
    let mut gateway =
        TestGateway::new().cli("codex", "tell pid $$; hang").model("m", json!({"driver": "codex"})).start();
    let waiting = gateway.chat("hi").open();
    gateway.wait_for_note("pid");
    until("the row has the state running", || runs(&gateway)[0]["state"] == "running");
    gateway.kill();
    drop(waiting);
    // Changes the marker file and the row to those of a gateway in another pid namespace.
    let marker = fs::read_dir(gateway.path("state/alive")).unwrap().next().unwrap().unwrap().path();
    fs::rename(marker, gateway.path("state/alive/pid:[1]:1-1")).unwrap();
    Database::open(&gateway.path("state/trunkline.db")).run("UPDATE turns SET gateway = 'pid:[1]:1-1'");
    gateway.restart();
    until("the run is interrupted", || runs(&gateway)[0]["state"] == "interrupted");
    until("the marker file is deleted", || fs::read_dir(gateway.path("state/alive")).unwrap().count() == 1);
}

#[test]
fn idempotency_key_finds_its_run_when_the_gateway_was_killed() {
    let script = "counted >/dev/null; tell pid $$; hang";
    let mut gateway = TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start();
    let first = gateway.chat("hi").header("idempotency-key", "k").open();
    gateway.wait_for_note("pid");
    gateway.kill();
    drop(first);
    gateway.restart();
    let repeated = gateway.chat("hi").header("idempotency-key", "k").send();
    assert_eq!((repeated.status, repeated.header("idempotent-replayed")), (500, Some("true")), "{repeated:?}");
    assert!(repeated.body.contains("interrupted"), "{repeated:?}");
    assert_eq!(runs(&gateway).len(), 1);
}

#[test]
fn two_gateways_on_one_state_folder_see_but_do_not_interrupt_each_others_runs() {
    let slow = "tell pid $$; codex_says one; await go; codex_answers two";
    let gateway = TestGateway::new().cli("codex", slow).model("m", json!({"driver": "codex"})).start();
    let mut stream = gateway.chat("hi").streamed().header("idempotency-key", "k").open();
    stream.read_until("one");
    let other = gateway.second_gateway();
    let run = runs(&gateway)[0]["id"].as_str().unwrap().to_owned();
    let get_from_other = |path: &str| {
        let address = other.address();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        crate::http::send_raw(address, &request)
    };
    assert_eq!(get_from_other(&format!("/v1/runs/{run}")).finish().json()["state"], "running");
    let following = get_from_other(&format!("/v1/runs/{run}/events"));
    let joining = other.chat("m", "hi").streamed().header("idempotency-key", "k").open();
    gateway.leave_note("go");
    let last = following.finish().frames().pop().unwrap();
    assert_eq!(last["event"]["type"], "finished");
    let (first, joined) = (stream.finish(), joining.finish());
    assert_eq!((&joined.body, joined.header("idempotent-replayed")), (&first.body, Some("true")));
}
