//! Several processes on one state folder: a gateway and `trunkline run`, or a process that holds the database lock.

use std::process::Child;

use serde_json::json;

use crate::database::Database;
use crate::observe::until;
use crate::test_gateway::TestGateway;

const CODEX: &str = "0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";

/// Fails if another instance is running. The second run announces itself and waits for the test.
const EXCLUSIVE: &str = "cat >/dev/null; mkdir \"$seen/busy\" || exit 1; \
    if [ \"$(counted)\" = 2 ]; then tell speaking; await go; fi; rmdir \"$seen/busy\"; \
    echo '{\"type\":\"thread.started\",\"thread_id\":\"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\"}'; codex_answers done";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"}))
}

fn exit_code(mut child: Child) -> Option<i32> {
    child.wait().unwrap().code()
}

#[test]
fn run_command_waits_when_gateway_has_the_session() {
    let gateway = gateway(EXCLUSIVE).start();
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let open = gateway.chat("hi").header("x-trunkline-session", &id).open();
    gateway.wait_for_note("speaking");
    let run = gateway.launch(&["run", "-v", "-m", "m", "--session", &id, "hi"]);
    let waiting = format!("another process speaks in the session; waiting for it session={id}");
    until("the command logs that it waits", || {
        gateway.log().contains(&waiting) || gateway.read_note("codex.runs").lines().count() > 2
    });
    assert!(gateway.log().contains(&format!("process={}", gateway.gateway_pid())), "{}", gateway.log());
    gateway.leave_note("go");
    assert_eq!(open.finish().content(), "done");
    assert_eq!(exit_code(run), Some(0), "{}", gateway.log());
    assert_eq!(gateway.read_note("codex.runs").lines().count(), 3);
}

#[test]
fn error_names_the_process_when_session_is_busy_for_too_long() {
    let gateway = gateway(EXCLUSIVE).args(&["--queue-timeout", "300ms"]).start();
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let run = gateway.launch(&["run", "-m", "m", "--session", &id, "hi"]);
    gateway.wait_for_note("speaking");
    let error = gateway.chat("hi").header("x-trunkline-session", &id).send().error(503);
    assert!(error["message"].as_str().unwrap().ends_with(&format!(": process {} speaks in it", run.id())), "{error}");
    gateway.leave_note("go");
    assert_eq!(exit_code(run), Some(0), "{}", gateway.log());
    assert_eq!(
        gateway.chat("hi").header("x-trunkline-session", &id).send().content(),
        "done",
        "the session is free again"
    );
}

#[test]
fn session_is_free_when_the_process_that_held_it_was_killed() {
    let gateway = gateway(EXCLUSIVE).args(&["--queue-timeout", "20s"]).start();
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let mut run = gateway.launch(&["run", "-m", "m", "--session", &id, "hi"]);
    gateway.wait_for_note("speaking");
    run.kill().unwrap();
    exit_code(run);
    // The killed CLI could not remove its own marker.
    std::fs::remove_dir(gateway.path("seen/busy")).unwrap();
    assert_eq!(gateway.chat("hi").header("x-trunkline-session", &id).send().content(), "done");
}

/// Reports its thread id.
const REPORTS_THREAD: &str = "note \"$@\"; echo '{\"type\":\"thread.started\",\"thread_id\":\"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\"}'; \
    codex_answers done";

#[test]
fn case_74_turn_does_not_wait_when_database_is_locked() {
    let mut gateway = gateway(REPORTS_THREAD).args(&["--queue-timeout", "1s"]).start();
    gateway.chat("warm").send().content();
    let mut other = Database::open(&gateway.path("state/trunkline.db"));
    other.lock();
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    for _ in 0..3 {
        let reply = gateway.chat("hi").header("x-trunkline-session", &id).send();
        assert_eq!((reply.status, reply.content().as_str()), (200, "done"), "{reply:?}");
        assert!(gateway.argv("codex").windows(2).any(|two| two == ["resume", CODEX]), "{:?}", gateway.argv("codex"));
    }
    until("the busy database is logged", || gateway.log().contains("the database is busy"));
    other.unlock();
    until("the session is written after the unlock", || {
        other.all("SELECT id FROM sessions WHERE turns = 4").contains(&id)
    });
    let log = gateway.log();
    assert_eq!(log.matches("another process keeps it locked").count(), 1, "{log}");
    assert!(log.contains("the database is free again") && !log.contains("slow") && !log.contains("lost"), "{log}");
    gateway.kill();
    gateway.restart();
    assert_eq!(gateway.chat("hi").header("x-trunkline-session", &id).send().content(), "done");
    assert!(gateway.argv("codex").windows(2).any(|two| two == ["resume", CODEX]), "a restarted gateway resumes it");
}
