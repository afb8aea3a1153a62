//! Two gateways on one state folder: when one is killed, the other takes over its runs and saves their work.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::database::Database;
use crate::http::{Reply, send_raw};
use crate::observe::{until, within};
use crate::test_gateway::{SecondGateway, TestGateway};

/// Time within which the surviving gateway must notice.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(10);

fn request(other: &SecondGateway, method: &str, path: &str) -> Reply {
    let address = other.address();
    send_raw(address, &format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")).finish()
}

fn states(reply: &Reply) -> Vec<Value> {
    reply.json()["data"].as_array().unwrap().iter().map(|run| run["state"].clone()).collect()
}

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex", "worktree": true})).start()
}

#[test]
fn survivor_shows_runs_as_interrupted_when_their_gateway_is_killed() {
    let mut gateway = gateway("echo work >made.txt; codex_says one; tell pid $$; hang");
    let other = gateway.second_gateway();
    let waiting = gateway.chat("hi").streamed().open();
    gateway.wait_for_note("pid");
    let run = gateway.get("/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/runs/{run}");
    until("the run is running", || request(&other, "GET", &path).json()["state"] == "running");
    assert_eq!(request(&other, "DELETE", &path).error(409)["code"], "run_elsewhere");
    let following = send_raw(
        other.address(),
        &format!("GET {path}/events HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", other.address()),
    );
    // The killed gateway is not reaped yet, so its process id still exists.
    gateway.signal(Signal::KILL);
    within(TAKEOVER_TIMEOUT, "the survivor notices", || request(&other, "GET", &path).json()["state"] == "interrupted");
    let seen = request(&other, "GET", &path).json();
    assert_eq!((&seen["error"]["category"], seen["ended"].is_u64()), (&json!("server"), true), "{seen}");
    assert_eq!(seen["workspace"]["files_changed"], 1, "{seen}");
    let branch = seen["workspace"]["branch"].as_str().unwrap();
    assert_eq!(gateway.git(&["show", &format!("{branch}:made.txt")]), "work");
    assert_eq!(states(&request(&other, "GET", "/v1/runs")), ["interrupted"]);
    assert_eq!(states(&request(&other, "GET", "/v1/runs?state=running")), [] as [Value; 0]);
    assert_eq!(request(&other, "DELETE", &path).error(409)["code"], "run_over");
    let last = following.finish().frames().pop().unwrap();
    assert!(last["event"]["message"].as_str().unwrap().contains("interrupted"), "{last}");
    let listed = gateway.run(&["runs"]).exits(0);
    assert!(listed.stdout.contains("interrupted") && !listed.stdout.contains("running"), "{listed:?}");
    until("no worktree is left", || gateway.git(&["worktree", "list"]).lines().count() == 1);
    drop(waiting);
    gateway.wait_for_exit();
}

#[test]
fn survivor_saves_work_without_a_request_when_other_gateway_is_killed() {
    let mut gateway = gateway("echo work >made.txt; codex_says one; tell pid $$; hang");
    let _other = gateway.second_gateway();
    let waiting = gateway.chat("hi").streamed().open();
    gateway.wait_for_note("pid");
    gateway.kill();
    drop(waiting);
    until("no worktree is left", || gateway.git(&["worktree", "list"]).lines().count() == 1);
    let mut database = Database::open(&gateway.path("state/trunkline.db"));
    until("the run is recorded as interrupted", || database.all("SELECT state FROM turns") == ["interrupted"]);
    assert!(gateway.git(&["branch", "--list", "trunkline/*"]).contains("trunkline/"));
}

#[test]
fn session_continues_in_the_survivor_when_its_gateway_is_killed() {
    let script = "printf '{\"type\":\"thread.started\",\"thread_id\":\"0199a213-81c0-7800-8aa1-bbab2a035a53\"}\\n'
        case $(counted) in
        1) codex_answers first ;;
        2) echo half >half.txt; tell pid $$; hang ;;
        *) codex_answers \"$(cat half.txt)\" ;;
        esac";
    let mut gateway = gateway(script);
    let other = gateway.second_gateway();
    let session = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let second = gateway.chat("go on").header("x-trunkline-session", &session).open();
    gateway.wait_for_note("pid");
    gateway.kill();
    drop(second);
    let newest = || request(&other, "GET", "/v1/runs?limit=1").json()["data"][0]["state"].clone();
    until("the run is interrupted and its work saved", || newest() == "interrupted");
    let third = other.chat("m", "and on").header("x-trunkline-session", &session).send();
    assert_eq!(third.content(), "half");
    assert_eq!(third.json()["trunkline"]["session"]["resumed"], true);
}

/// The killed gateway had answered, and its log has the session's new id for resuming it. The index does not.
#[test]
fn survivor_continues_from_the_last_answer_when_the_killed_gateway_held_the_session() {
    const BEFORE: &str = "0199a213-81c0-7800-8aa1-bbab2a035a53";
    const AFTER: &str = "0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";
    let script = "note \"$@\"; case $(counted) in
        1) thread=0199a213-81c0-7800-8aa1-bbab2a035a53 ;;
        *) thread=0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f ;;
        esac
        printf '{\"type\":\"thread.started\",\"thread_id\":\"%s\"}\\n' $thread; codex_answers done";
    let mut gateway = TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start();
    let other = gateway.second_gateway();
    let resumed =
        |gateway: &TestGateway, thread: &str| gateway.argv("codex").windows(2).any(|two| two == ["resume", thread]);
    let session = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let mut database = Database::open(&gateway.path("state/trunkline.db"));
    until("the first turn is indexed", || database.all("SELECT native FROM sessions") == [BEFORE]);
    database.lock();
    let second = gateway.chat("go on").header("x-trunkline-session", &session).send();
    assert_eq!((second.content().as_str(), resumed(&gateway, BEFORE)), ("done", true));
    let holder = || {
        let lease = fs::read_dir(gateway.path("state/turns")).unwrap().next();
        lease.map(|lease| fs::read_to_string(lease.unwrap().path()).unwrap()).unwrap_or_default()
    };
    let killed = holder();
    assert_ne!(killed, "", "the session is held until the index has the turn");
    gateway.signal(Signal::KILL);
    let third = other.chat("m", "and on").header("x-trunkline-session", &session).open();
    until("the survivor holds the session", || !["", killed.as_str()].contains(&holder().as_str()));
    database.unlock();
    let third = third.finish();
    assert_eq!((third.content().as_str(), &third.json()["trunkline"]["session"]["resumed"]), ("done", &json!(true)));
    assert!(resumed(&gateway, AFTER), "{:?}", gateway.argv("codex"));
    gateway.wait_for_exit();
}

#[test]
fn runs_command_shows_runs_as_interrupted_when_no_gateway_is_left() {
    let mut gateway = gateway("tell pid $$; hang");
    let waiting = gateway.chat("hi").open();
    gateway.wait_for_note("pid");
    let listed = |gateway: &TestGateway, state: &str| {
        gateway.run(&["runs", "--json", "--status", state]).exits(0).stdout.lines().count()
    };
    until("the run is listed as running", || (listed(&gateway, "running"), listed(&gateway, "interrupted")) == (1, 0));
    let run = gateway.get("/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
    gateway.kill();
    drop(waiting);
    assert_eq!((listed(&gateway, "running"), listed(&gateway, "interrupted")), (0, 1));
    let shown = gateway.run(&["runs", "show", &run]).exits(0).stdout;
    assert!(shown.contains("interrupted: the gateway ended before the run did"), "{shown}");
    let refused = gateway.run(&["runs", "cancel", &run]).exits(1);
    assert!(refused.stderr.contains("has ended: interrupted"), "{refused:?}");
}
