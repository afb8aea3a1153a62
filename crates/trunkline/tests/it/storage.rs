//! A state folder that cannot be written: no run starts, requests are rejected, and health is degraded.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::observe::until;
use crate::test_gateway::{TestGateway, run_tool, which};

/// Counts its runs.
const CODEX: &str = "cat >/dev/null; counted >/dev/null; codex_answers done";

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn runs(gateway: &TestGateway) -> usize {
    fs::read_to_string(gateway.path("seen/codex.runs")).unwrap_or_default().lines().count()
}

/// Fails the test unless every kind of request is rejected and none of them runs.
#[track_caller]
fn assert_rejects_everything(gateway: &TestGateway) {
    let (before, listed) = (runs(gateway), gateway.get("/v1/runs").json()["data"].as_array().unwrap().len());
    for (headers, status) in [
        (&[][..], 503),
        (&[("prefer", "respond-async")], 507),
        (&[("idempotency-key", "k")], 503),
        (&[("idempotency-key", "k")], 503),
        (&[("idempotency-key", "k"), ("prefer", "respond-async")], 507),
        (&[("x-trunkline-on-disconnect", "detach")], 503),
    ] {
        let ask = headers.iter().fold(gateway.chat("hi"), |ask, (name, value)| ask.header(name, value));
        let reply = ask.send();
        let error = reply.error(status);
        assert_eq!(error["code"], "storage_unavailable", "{headers:?}");
        assert!(error["message"].as_str().unwrap().contains("cannot write to its state folder"), "{error}");
        assert!(reply.header("retry-after").is_some(), "{reply:?}");
        assert!(reply.header("x-trunkline-run").is_none(), "there is no run: {reply:?}");
    }
    let streamed = gateway.chat("hi").streamed().send();
    assert_eq!(streamed.error(503)["code"], "storage_unavailable");
    let health = gateway.get("/health");
    assert_eq!((health.status, &health.json()["status"]), (200, &json!("degraded")));
    assert!(!health.json()["reason"].as_str().unwrap().is_empty());
    assert_eq!(runs(gateway), before, "nothing ran");
    assert_eq!(gateway.get("/v1/runs").json()["data"].as_array().unwrap().len(), listed, "no row is left behind");
}

/// Fails the test unless the gateway recovers and the idempotency key of the rejected requests leads to one run.
#[track_caller]
fn assert_recovers(gateway: &TestGateway) {
    until("health is ok again", || gateway.get("/health").json()["status"] == "ok");
    assert!(gateway.get("/health").json().get("reason").is_none());
    let before = runs(gateway);
    for replayed in [None, Some("true")] {
        let reply = gateway.chat("hi").header("idempotency-key", "k").send();
        assert_eq!((reply.content().as_str(), reply.header("idempotent-replayed")), ("done", replayed));
    }
    assert_eq!(runs(gateway), before + 1);
    let accepted = gateway.chat("hi").header("prefer", "respond-async").send();
    assert_eq!(accepted.status, 202);
    let run = accepted.json()["id"].as_str().unwrap().to_owned();
    until("the run is finished", || gateway.get(&format!("/v1/runs/{run}")).json()["state"] == "finished");
}

#[test]
fn nothing_runs_when_state_folder_cannot_be_written() {
    let gateway = TestGateway::new().cli("codex", CODEX).model("m", json!({"driver": "codex"})).unprivileged().start();
    gateway.chat("hi").send().content();
    assert_eq!(gateway.get("/health").json()["status"], "ok");
    set_mode(&gateway.path("state"), 0o500);
    until("health is degraded", || gateway.get("/health").json()["status"] == "degraded");
    assert_rejects_everything(&gateway);
    set_mode(&gateway.path("state"), 0o700);
    assert_recovers(&gateway);
}

/// Puts the state folder on a small tmpfs, in user and mount namespaces. Returns `None` if the system forbids that.
fn on_small_disk(gateway: TestGateway) -> Option<TestGateway> {
    let (unshare, mount, sh) = (which("unshare"), which("mount"), which("sh"));
    let unshare = [unshare.to_str().unwrap(), "--user", "--map-root-user", "--mount"];
    let trial = [&unshare[1..], &["sh", "-c", "mount -t tmpfs none /mnt"]].concat();
    if !run_tool("unshare", &trial) {
        eprintln!("skipped: this system does not allow a user namespace with its own mounts");
        return None;
    }
    let state = gateway.path("state");
    fs::create_dir(&state).unwrap();
    let (mount, state) = (mount.display(), state.display());
    let script = format!("{mount} -t tmpfs -o size=6m,mode=700 none '{state}' && exec \"$0\" \"$@\"");
    Some(gateway.wrapped_in(&[&unshare[..], &[sh.to_str().unwrap(), "-c", &script]].concat()))
}

#[test]
fn nothing_runs_twice_and_health_is_degraded_when_disk_is_full() {
    let gateway = TestGateway::new();
    let state = gateway.path("state").display().to_string();
    // One run fills the disk and frees it on command.
    let fills = format!(
        "cat >/dev/null; dd if=/dev/zero of='{state}/filler' bs=4096 2>/dev/null; tell full 1; await free; \
         rm '{state}/filler'; tell freed 1; replay gemini/ansi-stream-json"
    );
    let gateway = gateway
        .cli("codex", CODEX)
        .cli("gemini", &fills)
        .model("m", json!({"driver": "codex"}))
        .model("z-fills", json!({"driver": "gemini", "permissions": "full"}));
    let Some(gateway) = on_small_disk(gateway) else { return };
    let gateway = gateway.start();
    gateway.chat("hi").send().content();
    let filling = gateway.chat("hi").model("z-fills").open();
    gateway.wait_for_note("full");
    until("health is degraded", || gateway.get("/health").json()["status"] == "degraded");
    let reason = gateway.get("/health").json()["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("No space left") || reason.contains("full"), "{reason}");
    assert_rejects_everything(&gateway);
    gateway.leave_note("free");
    gateway.wait_for_note("freed");
    assert_eq!(filling.finish().status, 200, "a running run is not stopped");
    assert_recovers(&gateway);
}

#[test]
fn requests_are_rejected_when_only_the_database_cannot_grow() {
    let sh = which("sh");
    let script = "ulimit -f 1024; exec \"$0\" \"$@\"";
    let gateway = TestGateway::new()
        .cli("codex", CODEX)
        .model("m", json!({"driver": "codex"}))
        .wrapped_in(&[sh.to_str().unwrap(), "-c", script])
        .start();
    // Each record fits into the limit of the file size, and a few of them exceed it. A record that does not fit at all is
    // lost alone, and the next one is accepted.
    let long = "x".repeat(60_000);
    until("the database has reached the limit", || gateway.chat(&long).send().status == 503);
    let health = gateway.get("/health").json();
    assert_eq!(health["status"], "degraded", "{health}");
    assert_eq!(gateway.chat(&long).header("prefer", "respond-async").send().error(507)["code"], "storage_unavailable");
}
