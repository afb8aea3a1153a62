//! Several processes and one state folder: a gateway and `trunkline run`, or somebody who keeps the database locked.

use std::process::Child;

use serde_json::json;

use crate::database::Database;
use crate::observe::until;
use crate::test_gateway::TestGateway;

const CODEX: &str = "0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";

/// Fails if another of its kind is at work. The second says that it is, and waits for the word of the test.
const ALONE: &str = "cat >/dev/null; mkdir \"$seen/busy\" || exit 1; \
    if [ \"$(counted)\" = 2 ]; then tell speaking; await go; fi; rmdir \"$seen/busy\"; \
    echo '{\"type\":\"thread.started\",\"thread_id\":\"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\"}'; codex_answers done";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"}))
}

fn end(mut child: Child) -> Option<i32> {
    child.wait().unwrap().code()
}

#[test]
fn another_process_waits_for_its_turn_in_a_session() {
    let line = gateway(ALONE).start();
    let id = line.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let open = line.chat("hi").header("x-trunkline-session", &id).open();
    line.wait_for_note("speaking");
    let run = line.launch(&["run", "-v", "-m", "m", "--session", &id, "hi"]);
    let waits = format!("another process speaks in the session; waiting for it session={id}");
    until("it says that it waits", || line.log().contains(&waits) || line.read_note("codex.runs").lines().count() > 2);
    assert!(line.log().contains(&format!("process={}", line.gateway_pid())), "{}", line.log());
    line.leave_note("go");
    assert_eq!(open.finish().content(), "done");
    assert_eq!(end(run), Some(0), "{}", line.log());
    assert_eq!(line.read_note("codex.runs").lines().count(), 3);
}

#[test]
fn who_waits_too_long_for_another_process_is_told_which() {
    let gateway = gateway(ALONE).args(&["--queue-timeout", "300ms"]).start();
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let run = gateway.launch(&["run", "-m", "m", "--session", &id, "hi"]);
    gateway.wait_for_note("speaking");
    let error = gateway.chat("hi").header("x-trunkline-session", &id).send().error(503);
    assert!(error["message"].as_str().unwrap().ends_with(&format!(": process {} speaks in it", run.id())), "{error}");
    gateway.leave_note("go");
    assert_eq!(end(run), Some(0), "{}", gateway.log());
    assert_eq!(gateway.chat("hi").header("x-trunkline-session", &id).send().content(), "done", "it is free again");
}

#[test]
fn a_process_that_was_killed_keeps_nobody_out_of_its_session() {
    let gateway = gateway(ALONE).args(&["--queue-timeout", "20s"]).start();
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let mut run = gateway.launch(&["run", "-m", "m", "--session", &id, "hi"]);
    gateway.wait_for_note("speaking");
    run.kill().unwrap();
    end(run);
    // What it was about is gone with it, but for its mark.
    std::fs::remove_dir(gateway.path("seen/busy")).unwrap();
    assert_eq!(gateway.chat("hi").header("x-trunkline-session", &id).send().content(), "done");
}

/// Says which thread it goes on with.
const REMEMBERS: &str = "note \"$@\"; echo '{\"type\":\"thread.started\",\"thread_id\":\"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\"}'; \
    codex_answers done";

#[test]
fn case_74_the_next_turn_does_not_wait_for_a_database_that_somebody_keeps_locked() {
    let mut line = gateway(REMEMBERS).args(&["--queue-timeout", "1s"]).start();
    line.chat("warm").send().content();
    let mut other = Database::open(&line.path("state/trunkline.db"));
    other.lock();
    let id = line.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    for _ in 0..3 {
        let reply = line.chat("hi").header("x-trunkline-session", &id).send();
        assert_eq!((reply.status, reply.content().as_str()), (200, "done"), "{reply:?}");
        assert!(line.argv("codex").windows(2).any(|two| two == ["resume", CODEX]), "{:?}", line.argv("codex"));
    }
    until("it is said", || line.log().contains("the database is busy"));
    other.unlock();
    until("it is written after all", || other.all("SELECT id FROM sessions WHERE turns = 4").contains(&id));
    let log = line.log();
    assert_eq!(log.matches("another process keeps it locked").count(), 1, "{log}");
    assert!(log.contains("the database is free again") && !log.contains("slow") && !log.contains("lost"), "{log}");
    line.kill();
    line.restart();
    assert_eq!(line.chat("hi").header("x-trunkline-session", &id).send().content(), "done");
    assert!(line.argv("codex").windows(2).any(|two| two == ["resume", CODEX]), "another gateway knows it");
}
