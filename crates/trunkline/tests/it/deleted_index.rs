//! The database is deleted while gateways run: it is only an index of the run log, so nothing is lost.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::database::Database;
use crate::http::{Reply, send_raw};
use crate::test_gateway::TestGateway;

const THREAD: &str = "0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";

/// Reports its thread id, and answers with the number of its run.
const NUMBERED: &str = "note \"$@\"; echo '{\"type\":\"thread.started\",\"thread_id\":\"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\"}'; \
    codex_answers \"$(counted)\"";

fn gateway() -> TestGateway {
    TestGateway::new().cli("codex", NUMBERED).model("m", json!({"driver": "codex"})).start()
}

fn delete_index(gateway: &TestGateway) {
    for name in ["trunkline.db", "trunkline.db-wal", "trunkline.db-shm"] {
        // The last process to close the database removes two of them.
        let _ = fs::remove_file(gateway.path("state").join(name));
    }
}

fn ids(reply: &Reply) -> Vec<String> {
    let runs = reply.json()["data"].as_array().unwrap().clone();
    assert!(runs.iter().all(|run| run["state"] == "finished"), "{runs:?}");
    runs.iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
}

/// Runs as another process lists them.
fn ids_elsewhere(gateway: &TestGateway) -> Vec<String> {
    let listed = gateway.run(&["runs", "--json"]).exits(0).stdout;
    listed.lines().map(|run| serde_json::from_str::<Value>(run).unwrap()["id"].as_str().unwrap().to_owned()).collect()
}

fn run_of(reply: &Reply) -> String {
    reply.header("x-trunkline-run").unwrap().to_owned()
}

#[test]
fn nothing_is_lost_or_run_twice_when_the_index_is_deleted_while_the_gateway_runs() {
    for killed in [false, true] {
        let mut gateway = gateway();
        let keyed = |gateway: &TestGateway, key: &str| gateway.chat(key).header("idempotency-key", key).send();
        let first = keyed(&gateway, "k1");
        let session = first.header("x-trunkline-session").unwrap().to_owned();
        let go_on = |gateway: &TestGateway| gateway.chat("go on").header("x-trunkline-session", &session).send();
        let second = go_on(&gateway);
        delete_index(&gateway);

        let third = go_on(&gateway);
        assert_eq!(third.json()["trunkline"]["session"]["resumed"], true, "{third:?}");
        let fourth = keyed(&gateway, "k2");
        let mut expected: Vec<String> = [&first, &second, &third, &fourth].map(run_of).into();
        expected.reverse();
        assert_eq!(ids_elsewhere(&gateway), expected, "killed: {killed}");
        delete_index(&gateway);
        // Another process creates the next database.
        assert_eq!(ids_elsewhere(&gateway), expected, "killed: {killed}");
        let asked = format!("GET /v1/runs HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", gateway.address());
        let lists: Vec<_> = (0..8).map(|_| send_raw(gateway.address(), &asked)).collect();
        for list in lists {
            assert_eq!(ids(&list.finish()), expected, "killed: {killed}");
        }
        delete_index(&gateway);
        for (key, known) in [("k1", &first), ("k2", &fourth)] {
            let repeated = keyed(&gateway, key);
            assert_eq!((&repeated.body, repeated.header("idempotent-replayed")), (&known.body, Some("true")), "{key}");
        }
        delete_index(&gateway);
        if killed {
            gateway.kill();
        } else {
            gateway.signal(Signal::TERM);
            assert_eq!(gateway.wait_for_exit(), Some(0), "{}", gateway.log());
        }

        gateway.restart();
        assert_eq!(ids(&gateway.get("/v1/runs")), expected, "killed: {killed}");
        for (key, known) in [("k1", &first), ("k2", &fourth)] {
            let repeated = keyed(&gateway, key);
            assert_eq!((&repeated.body, repeated.header("idempotent-replayed")), (&known.body, Some("true")), "{key}");
        }
        assert_eq!(gateway.read_note("codex.runs").lines().count(), 4, "killed: {killed}");
        let fifth = go_on(&gateway);
        assert_eq!((fifth.content().as_str(), fifth.header("x-trunkline-session")), ("5", Some(session.as_str())));
        assert!(gateway.argv("codex").windows(2).any(|two| two == ["resume", THREAD]), "{:?}", gateway.argv("codex"));
        expected.insert(0, run_of(&fifth));
        assert_eq!(ids_elsewhere(&gateway), expected, "killed: {killed}");
        let check = Database::open(&gateway.path("state/trunkline.db")).all("PRAGMA integrity_check");
        assert_eq!(check, ["ok"], "killed: {killed}");
    }
}

#[test]
fn gateways_share_sessions_and_keys_when_the_index_is_deleted_under_both() {
    let gateway = gateway();
    let other = gateway.second_gateway();
    let session = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    delete_index(&gateway);
    let ours = gateway.chat("same").header("idempotency-key", "k").send();
    let theirs = other.chat("m", "same").header("idempotency-key", "k").send();
    assert_eq!((&theirs.body, theirs.header("idempotent-replayed")), (&ours.body, Some("true")));
    delete_index(&gateway);
    let continued = other.chat("m", "go on").header("x-trunkline-session", &session).send();
    assert_eq!(continued.json()["trunkline"]["session"]["resumed"], true, "{continued:?}");
    let run = gateway.run(&["run", "-m", "m", "--session", &session, "and on"]).exits(0);
    assert_eq!(run.stdout.trim(), "4", "{run:?}");
    assert_eq!(ids(&gateway.get("/v1/runs")).len(), 4);
    assert_eq!(ids_elsewhere(&gateway).len(), 4);
}
