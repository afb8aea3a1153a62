//! Timeouts: CLIs that hang, at every point where one can.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::observe::until_gone;
use crate::test_gateway::TestGateway;

fn codex(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).args(&["--grace", "200ms"])
}

#[test]
fn run_times_out_when_cli_prints_nothing() {
    let gateway = codex("tell pid $$; hang").model("m", json!({"driver": "codex", "timeout": "300ms"})).start();
    let reply = gateway.chat("hi").send();
    let error = reply.error(504);
    assert_eq!(error["message"], "CLI failed: Query timed out");
    assert_eq!(error["detail"], "Query timed out");
    assert_eq!(error["code"], "timeout");
    assert_eq!(error["hint"], "the total limit of 300ms passed while starting (timeout)");
    until_gone(&[gateway.wait_for_pid("pid")]);
    assert_eq!(gateway.chat("hi").streamed().send().error(504)["detail"], "Query timed out");
}

#[test]
fn run_hits_the_idle_limit_when_cli_stops_printing() {
    let gateway = codex("codex_says one; tell pid $$; hang")
        .model("m", json!({"driver": "codex", "idleTimeout": "300ms"}))
        .start();
    let error = gateway.chat("hi").send().error(504);
    assert_eq!(error["detail"], "Query timed out");
    assert_eq!(error["hint"], "the idle limit of 300ms passed while waiting for the model (idleTimeout)");
    until_gone(&[gateway.wait_for_pid("pid")]);
    let streamed = gateway.chat("hi").streamed().send();
    assert_eq!(streamed.streamed_text(), "one");
    assert_eq!(streamed.frames().last().unwrap()["error"]["detail"], "Query timed out");
    assert!(!streamed.is_done(), "{}", streamed.body);
}

#[test]
fn idle_limit_does_not_apply_when_a_tool_is_running() {
    let tool = r#"{"type":"item.started","item":{"id":"i","type":"command_execution","command":"make","status":"in_progress"}}"#;
    let gateway = codex(&format!("echo '{tool}'; sleep 1; codex_answers done"))
        .model("m", json!({"driver": "codex", "idleTimeout": "300ms"}))
        .start();
    assert_eq!(gateway.chat("hi").send().content(), "done");
}

#[test]
fn run_hits_the_limit_of_its_current_phase() {
    let tool = |id: &str, name: &str| {
        format!(r#"echo '{{"type":"item.started","item":{{"id":"{id}","type":"{name}","status":"in_progress"}}}}';"#)
    };
    for (script, setting, hint) in [
        ("".to_owned(), "startupTimeout", "start-up limit of 300ms passed while starting"),
        (tool("a", "command_execution"), "toolTimeout", "tool limit of 300ms passed while running command_execution"),
        (
            tool("a", "command_execution") + &tool("b", "web_search"),
            "toolTimeout",
            "tool limit of 300ms passed while running command_execution and 1 more",
        ),
        (
            tool("a", "context_compaction"),
            "compactTimeout",
            "compaction limit of 300ms passed while compacting its context",
        ),
    ] {
        let gateway = codex(&format!("{script} tell pid $$; hang"))
            .model("m", json!({"driver": "codex", setting: "300ms"}))
            .start();
        let error = gateway.chat("hi").send().error(504);
        assert_eq!(error["hint"], format!("the {hint} ({setting})"));
        until_gone(&[gateway.wait_for_pid("pid")]);
    }
}

#[test]
fn case_71_run_does_not_time_out_when_gateway_was_suspended() {
    let gateway = codex("codex_says one; tell pid $$; await go; codex_answers two")
        .model("m", json!({"driver": "codex", "timeout": "6s", "idleTimeout": "5s"}))
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    // A fixed sleep: the test is about a suspension that is longer than every limit of the run.
    gateway.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(8));
    gateway.leave_note("go");
    gateway.signal(Signal::CONT);
    assert!(stream.finish().streamed_text().ends_with("two"));
}

#[test]
fn answer_is_returned_when_cli_hangs_after_it() {
    let gateway = codex("codex_answers done; tell pid $$; hang").model("m", json!({"driver": "codex"})).start();
    assert_eq!(gateway.chat("hi").send().content(), "done");
    until_gone(&[gateway.wait_for_pid("pid")]);
}

#[test]
fn cli_is_killed_when_it_ignores_sigterm() {
    let gateway = codex("trap '' TERM INT HUP; tell pid $$; hang")
        .model("m", json!({"driver": "codex", "timeout": "300ms"}))
        .start();
    gateway.chat("hi").send().error(504);
    until_gone(&[gateway.wait_for_pid("pid")]);
}

#[test]
fn case_40_answer_is_returned_when_a_daemon_keeps_the_output_open() {
    // A double fork into a new session that still holds our pipe.
    let daemon = "(setsid sh -c 'tell() { echo \"$2\" >\"'\"$seen\"'/.$1\"; mv \"'\"$seen\"'/.$1\" \"'\"$seen\"'/$1\"; }; \
                  tell daemon $$; exec sleep 1000' &); await daemon;";
    let gateway = TestGateway::new()
        .cli("codex", &format!("{daemon} codex_answers done"))
        .cli("plain", &format!("{daemon} echo done"))
        .model("events", json!({"driver": "codex"}))
        .model("text", json!({"driver": "text", "command": "plain"}))
        .start();
    for model in ["events", "text"] {
        assert_eq!(gateway.chat("hi").model(model).send().content(), "done");
        until_gone(&[gateway.wait_for_pid("daemon")]);
        std::fs::remove_file(gateway.path("seen/daemon")).unwrap();
    }
}

#[test]
fn case_41_answer_is_returned_when_cli_closes_its_output_but_keeps_running() {
    let gateway = TestGateway::new()
        .cli("plain", "echo done; tell pid $$; exec >&- 2>&-; hang")
        .model("m", json!({"driver": "text", "command": "plain"}))
        .args(&["--grace", "200ms"])
        .start();
    assert_eq!(gateway.chat("hi").send().content(), "done");
    until_gone(&[gateway.wait_for_pid("pid")]);
}
