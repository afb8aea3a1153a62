//! A gateway that is killed: its runs are known to be interrupted, their logs end, and their work is kept.

use std::fs;

use serde_json::{Value, json};

use crate::database::Database;
use crate::http::Reply;
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

fn killed(script: &str, phase: &str) -> (TestGateway, Vec<Value>) {
    let mut line = TestGateway::new()
        .cli("codex", script)
        .model("m", json!({"driver": "codex", "worktree": true}))
        .args(&["--max-runs", "1"])
        .start();
    let waiting = line.chat(phase).streamed().open();
    line.wait_for_note("pid");
    let queued = (phase == "queued").then(|| line.chat("waits").open());
    if queued.is_some() {
        until("it waits", || runs(&line).len() == 2);
    }
    if phase == "in a tool" {
        until("it is in its tool", || runs(&line)[0]["state"] == "running" && logged(&line).contains("tool_started"));
    }
    line.kill();
    drop((waiting, queued));
    until_gone(&[line.wait_for_pid("pid")]);
    line.restart();
    until("they are known to be interrupted", || runs(&line).iter().all(|run| run["state"] == "interrupted"));
    let runs = runs(&line);
    for run in &runs {
        let id = run["id"].as_str().unwrap();
        assert_eq!((&run["error"]["category"], run["ended"].is_u64()), (&json!("server"), true), "{phase}: {run}");
        let frames = events(&line, id).frames();
        assert!(frames.iter().enumerate().all(|(at, frame)| frame["seq"] == at), "{phase}: {frames:?}");
        let last = &frames.last().unwrap()["event"];
        assert_eq!(last["type"], "failed", "{phase}: {frames:?}");
        assert!(last["message"].as_str().unwrap().contains("interrupted"), "{phase}: {last}");
    }
    until("no worktree is left", || line.git(&["worktree", "list"]).lines().count() == 1);
    (line, runs)
}

fn runs(gateway: &TestGateway) -> Vec<Value> {
    gateway.get("/v1/runs").json()["data"].as_array().unwrap().clone()
}

/// The log of the only run, as it is on disk.
fn logged(gateway: &TestGateway) -> String {
    let folders = fs::read_dir(gateway.path("state/runs")).unwrap().map(|folder| folder.unwrap().path());
    let logs = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().map(|log| log.unwrap().path());
    logs.filter_map(|log| fs::read_to_string(log).ok()).collect()
}

fn events(gateway: &TestGateway, id: &str) -> Reply {
    gateway.get(&format!("/v1/runs/{id}/events"))
}

#[test]
fn case_37_a_gateway_that_is_killed_before_anything_was_said() {
    let (_line, runs) = killed("tell pid $$; hang", "starting");
    assert_eq!(runs.len(), 1);
}

#[test]
fn case_37_a_gateway_that_is_killed_while_one_waits() {
    let (_line, runs) = killed("tell pid $$; hang", "queued");
    assert_eq!(runs.len(), 2);
}

#[test]
fn case_61_a_gateway_that_is_killed_in_the_middle_keeps_the_work() {
    let (line, runs) = killed("echo work >made.txt; codex_says one; tell pid $$; hang", "streaming");
    let workspace = &runs[0]["workspace"];
    assert_eq!(workspace["files_changed"], 1, "{runs:?}");
    let branch = workspace["branch"].as_str().unwrap();
    assert_eq!(line.git(&["show", &format!("{branch}:made.txt")]), "work");
    let diff = line.get(&format!("/v1/runs/{}/diff", runs[0]["id"].as_str().unwrap()));
    assert_eq!(diff.header("content-type"), Some("text/x-diff"));
    assert!(diff.body.contains("+++ b/made.txt") && diff.body.contains("+work"), "{diff:?}");
}

#[test]
fn case_37_a_gateway_that_is_killed_while_a_tool_runs() {
    let tool = r#"printf '{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"make","status":"in_progress"}}\n'"#;
    let (line, runs) = killed(&format!("{tool}; tell pid $$; hang"), "in a tool");
    let frames = events(&line, runs[0]["id"].as_str().unwrap()).frames();
    assert!(frames.iter().any(|frame| frame["event"]["type"] == "tool_started"), "{frames:?}");
}

#[test]
fn a_gateway_that_is_killed_after_the_result_has_nothing_to_interrupt() {
    let mut gateway =
        TestGateway::new().cli("codex", "codex_answers done").model("m", json!({"driver": "codex"})).start();
    let reply = gateway.chat("hi").send();
    assert_eq!(reply.content(), "done");
    until("it is written down", || runs(&gateway)[0]["state"] == "finished");
    gateway.kill();
    gateway.restart();
    assert_eq!(runs(&gateway)[0]["state"], "finished");
    let frames = events(&gateway, reply.header("x-trunkline-run").unwrap()).frames();
    assert_eq!(frames.last().unwrap()["event"]["content"], "done");
}

#[test]
fn a_session_whose_turn_was_killed_goes_on_with_its_work() {
    let script = "printf '{\"type\":\"thread.started\",\"thread_id\":\"0199a213-81c0-7800-8aa1-bbab2a035a53\"}\\n'
        case $(counted) in
        1) codex_answers first ;;
        2) echo half >half.txt; tell pid $$; hang ;;
        *) codex_answers \"$(cat half.txt)\" ;;
        esac";
    let mut line =
        TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex", "worktree": true})).start();
    let first = line.chat("hi").send();
    assert_eq!(first.content(), "first");
    let session = first.header("x-trunkline-session").unwrap().to_owned();
    let second = line.chat("go on").header("x-trunkline-session", &session).open();
    line.wait_for_note("pid");
    line.kill();
    drop(second);
    line.restart();
    until("no worktree is left", || line.git(&["worktree", "list"]).lines().count() == 1);
    until("it is known", || runs(&line).iter().any(|run| run["state"] == "interrupted"));
    let third = line.chat("and on").header("x-trunkline-session", &session).send();
    assert_eq!(third.content(), "half");
}

#[test]
fn a_gateway_of_another_container_is_known_to_be_dead() {
    let mut line = TestGateway::new().cli("codex", "tell pid $$; hang").model("m", json!({"driver": "codex"})).start();
    let waiting = line.chat("hi").open();
    line.wait_for_note("pid");
    until("its row says that it runs", || runs(&line)[0]["state"] == "running");
    line.kill();
    drop(waiting);
    // What it would be if its process ids were another namespace's.
    let mark = fs::read_dir(line.path("state/alive")).unwrap().next().unwrap().unwrap().path();
    fs::rename(mark, line.path("state/alive/pid:[1]:1-1")).unwrap();
    Database::open(&line.path("state/trunkline.db")).run("UPDATE turns SET gateway = 'pid:[1]:1-1'");
    line.restart();
    until("it is interrupted", || runs(&line)[0]["state"] == "interrupted");
    until("nothing is kept of it", || fs::read_dir(line.path("state/alive")).unwrap().count() == 1);
}

#[test]
fn a_key_is_that_of_the_same_run_after_a_kill() {
    let script = "counted >/dev/null; tell pid $$; hang";
    let mut gateway = TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start();
    let first = gateway.chat("hi").header("idempotency-key", "k").open();
    gateway.wait_for_note("pid");
    gateway.kill();
    drop(first);
    gateway.restart();
    let again = gateway.chat("hi").header("idempotency-key", "k").send();
    assert_eq!((again.status, again.header("idempotent-replayed")), (500, Some("true")), "{again:?}");
    assert!(again.body.contains("interrupted"), "{again:?}");
    assert_eq!(runs(&gateway).len(), 1);
}

#[test]
fn two_gateways_on_one_state_see_each_others_runs_and_interrupt_none() {
    let slow = "tell pid $$; codex_says one; await go; codex_answers two";
    let gateway = TestGateway::new().cli("codex", slow).model("m", json!({"driver": "codex"})).start();
    let mut stream = gateway.chat("hi").streamed().header("idempotency-key", "k").open();
    stream.read_until("one");
    let other = gateway.second_gateway();
    let run = runs(&gateway)[0]["id"].as_str().unwrap().to_owned();
    let seen = |path: &str| {
        let address = other.address();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        crate::http::send_raw(address, &request)
    };
    assert_eq!(seen(&format!("/v1/runs/{run}")).finish().json()["state"], "running");
    let following = seen(&format!("/v1/runs/{run}/events"));
    let joining = other.chat("m", "hi").streamed().header("idempotency-key", "k").open();
    gateway.leave_note("go");
    let last = following.finish().frames().pop().unwrap();
    assert_eq!(last["event"]["type"], "finished");
    let (first, joined) = (stream.finish(), joining.finish());
    assert_eq!((&joined.body, joined.header("idempotent-replayed")), (&first.body, Some("true")));
}
