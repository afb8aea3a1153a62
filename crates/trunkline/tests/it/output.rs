//! Bad output of CLIs: none, too much, truncated, or not text at all.

use serde_json::json;

use crate::observe::{peak_memory, until, until_gone};
use crate::test_gateway::TestGateway;

/// Shell function that prints `$1` million times the letter x.
const FLOOD: &str = "flood() { dd if=/dev/zero bs=1000000 count=\"$1\" 2>/dev/null | tr '\\0' x; };";

fn codex(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", &format!("{FLOOD} {script}")).model("m", json!({"driver": "codex"})).start()
}

fn text(script: &str) -> TestGateway {
    TestGateway::new()
        .cli("plain", &format!("{FLOOD} {script}"))
        .model("m", json!({"driver": "text", "command": "plain"}))
        .start()
}

#[test]
fn case_42_answer_has_a_fixed_text_when_cli_prints_nothing() {
    for gateway in [codex("exit 0"), text("echo; echo '  '")] {
        assert_eq!(gateway.chat("hi").send().content(), "No output from CLI.");
        let streamed = gateway.chat("hi").streamed().send();
        assert_eq!(streamed.streamed_text(), "No output from CLI.");
        assert!(streamed.is_done());
    }
}

#[test]
fn answer_is_the_last_block_when_normalize_is_last_block() {
    let script = "printf '[log] start\\n[tool] ls\\n\\nThe answer\\nin two lines\\n\\n'";
    let entry = json!({"driver": "text", "command": "plain", "normalize": "last_block"});
    let gateway = TestGateway::new().cli("plain", script).model("m", entry).start();
    assert_eq!(gateway.chat("hi").send().content(), "The answer\nin two lines");
    assert_eq!(gateway.chat("hi").streamed().send().streamed_text(), "The answer\nin two lines");
}

#[test]
fn case_27_escape_sequences_are_stripped_from_the_answer() {
    let gateway = text("printf '\\033[1;31mred\\033[0m \\033]0;title\\007and plain\\n'");
    assert_eq!(gateway.chat("hi").send().content(), "red and plain");
}

#[test]
fn case_48_run_fails_when_cli_dies_in_the_middle_of_a_line() {
    let gateway = codex("codex_says one; printf '{\"type\":\"item.comp'; kill -9 $$");
    let reply = gateway.chat("hi").send();
    assert!(matches!(reply.status, 500 | 504), "{reply:?}");
    assert!(reply.json()["error"]["message"].as_str().unwrap().starts_with("CLI failed: "), "{reply:?}");
    assert!(reply.json()["error"]["detail"].as_str().unwrap().contains("SIGKILL"), "{reply:?}");
}

#[test]
fn case_43_memory_is_bounded_when_cli_prints_a_hundred_megabytes() {
    let gateway = text("flood 100");
    for ask in [gateway.chat("hi"), gateway.chat("hi").streamed()] {
        let reply = ask.send();
        match reply.status {
            200 if reply.body.starts_with("data: ") => assert!(!reply.frames().is_empty()),
            200 => drop(reply.content()),
            status => drop(reply.error(status)),
        }
        let peak = peak_memory(gateway.gateway_pid()) / 1024;
        assert!(peak < 200, "{peak} MiB");
    }
}

#[test]
fn case_43_cli_is_stopped_when_its_output_never_ends() {
    let gateway = text("tell pid $$; exec cat /dev/zero");
    let error = gateway.chat("hi").send().error(500);
    assert!(error["detail"].as_str().unwrap().contains("larger than 64 MiB"), "{error}");
    until_gone(&[gateway.wait_for_pid("pid")]);
}

#[test]
fn case_43_answer_arrives_when_an_earlier_line_is_too_long() {
    let gateway = codex(
        "printf '{\"type\":\"item.completed\",\"item\":{\"id\":\"i\",\"type\":\"agent_message\",\"text\":\"'; flood 20; \
         printf '\"}}\\n'; codex_answers done",
    );
    assert_eq!(gateway.chat("hi").send().content(), "done");
}

#[test]
fn case_44_answer_arrives_when_cli_floods_stderr() {
    let gateway = codex("flood 10 >&2; codex_answers done");
    assert_eq!(gateway.chat("hi").send().content(), "done");
}

#[test]
fn case_47_invalid_utf8_is_replaced() {
    let gateway = text("printf 'caf\\303\\251 \\377 end\\n'");
    assert_eq!(gateway.chat("hi").send().content(), "café \u{fffd} end");
    let gateway = codex("codex_answers \"$(printf 'caf\\303\\251 \\377 end')\"");
    assert_eq!(gateway.chat("hi").send().content(), "café \u{fffd} end");
}

#[test]
fn case_47_character_is_kept_when_it_is_split_across_writes() {
    let gateway = text("printf 'caf\\303'; sleep 0.1; printf '\\251\\n'");
    assert_eq!(gateway.chat("hi").send().content(), "café");
    assert_eq!(gateway.chat("hi").streamed().send().streamed_text(), "café");
}

#[test]
fn ten_thousand_lines_arrive_unchanged() {
    let gateway = text("i=0; while [ $i -lt 10000 ]; do echo \"line $i é\"; i=$((i + 1)); done");
    let expected: Vec<String> = (0..10_000).map(|number| format!("line {number} é")).collect();
    assert!(gateway.chat("hi").send().content() == expected.join("\n"));
    assert!(gateway.chat("hi").streamed().send().streamed_text() == expected.join("\n"));
}

#[test]
fn cli_is_paused_when_its_client_does_not_read() {
    let gateway = text("tell pid $$; exec cat /dev/zero");
    let _unread = gateway.chat("hi").streamed().open();
    let pid = gateway.wait_for_pid("pid");
    let written = || {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap().parse::<u64>().unwrap()
    };
    let mut before = 0;
    until("the CLI stops writing", || {
        // Blocked means no progress between two samples this far apart.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let now = written();
        now == std::mem::replace(&mut before, now) && now > 0
    });
    // It is paused at 32 MiB. How much further it gets until the signal arrives depends on the load of the machine.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(state.contains(") T "), "{state}");
    assert!(written() < 400_000_000, "{}", written());
    let peak = peak_memory(gateway.gateway_pid()) / 1024;
    assert!(peak < 100, "{peak} MiB");
}

#[test]
fn case_48_unknown_event_is_counted_and_logged_once() {
    let strange = "printf '{\"type\":\"thread.dreamt\",\"of\":\"sheep\"}\\n'";
    let gateway = TestGateway::new()
        .cli("codex", &format!("[ \"$1\" = --version ] && exit; cat >/dev/null; {strange}; codex_answers done"))
        .model("m", json!({"driver": "codex"}))
        .start();
    for _ in 0..3 {
        assert_eq!(gateway.chat("hi").send().content(), "done");
    }
    let provider = gateway.get("/health/providers").json()["providers"][0].clone();
    assert_eq!(provider["unknown_events"], json!({"thread.dreamt": 3}), "{provider}");
    assert_eq!(gateway.log().matches("thread.dreamt").count(), 1, "{}", gateway.log());
    let port = gateway.address().rsplit(':').next().unwrap();
    let shown = gateway.run(&["doctor", "--port", port]).exits(0).stdout;
    assert!(shown.contains("printed an unknown event: \"thread.dreamt\", 3 times"), "{shown}");
}
