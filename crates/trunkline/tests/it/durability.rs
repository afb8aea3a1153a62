//! `--durability fsync`: a gateway sends the end of a run once the disk has it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::http::{PendingReply, send_raw};
use crate::observe::until;
use crate::test_gateway::{TestGateway, run_tool};

/// Starts a gateway whose calls of `fdatasync` for the log wait while the note `hold` exists.
fn gateway(script: &str) -> TestGateway {
    let gateway = TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"}));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/hold_sync.c");
    let (library, hold) = (gateway.path("hold_sync.so"), gateway.path("seen/hold"));
    let [source, library, hold] = [source, library, hold].map(|path: PathBuf| path.to_str().unwrap().to_owned());
    assert!(run_tool("cc", &["-shared", "-fPIC", "-o", &library, &source]), "cannot compile {source}");
    gateway.env("LD_PRELOAD", library).env("HOLD_SYNC", hold).args(&["--durability", "fsync"]).start()
}

fn follow(gateway: &TestGateway, run: &str) -> PendingReply {
    let address = gateway.address();
    send_raw(address, &format!("GET /v1/runs/{run}/events HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"))
}

#[test]
fn readers_in_the_same_gateway_get_the_end_of_a_run_once_it_is_synced() {
    let gateway = gateway("codex_says one; await go; codex_ends");
    let mut client = gateway.chat("hi").streamed().header("idempotency-key", "k").open();
    client.read_until("one");
    let run = gateway.get("/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
    let mut early = follow(&gateway, &run);
    early.read_until("one");
    gateway.leave_note("hold");
    gateway.leave_note("go");
    // The last record is in the log, and the disk does not have it.
    gateway.wait_for_note("hold.reached");
    let mut late = follow(&gateway, &run);
    let mut joined = gateway.chat("hi").streamed().header("idempotency-key", "k").open();
    for reader in [&mut client, &mut early, &mut late, &mut joined] {
        reader.read_until("one");
    }
    // Answered by the same gateway: it has had the time to answer the others.
    assert_eq!(gateway.get("/health").status, 200);
    for (reader, end) in
        [(&mut early, "finished"), (&mut late, "finished"), (&mut client, "[DONE]"), (&mut joined, "[DONE]")]
    {
        let shown = reader.arrived();
        assert!(!shown.contains(end), "{shown}");
    }
    fs::remove_file(gateway.path("seen/hold")).unwrap();
    for reader in [early, late] {
        assert_eq!(reader.finish().frames().pop().unwrap()["event"]["type"], "finished");
    }
    for reader in [client, joined] {
        let reply = reader.finish();
        assert!(reply.is_done() && reply.streamed_text().ends_with("one"), "{reply:?}");
    }
    until("the run is finished", || gateway.get(&format!("/v1/runs/{run}")).json()["state"] == "finished");
}
