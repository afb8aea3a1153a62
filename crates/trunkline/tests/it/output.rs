//! What CLIs print when things go wrong: nothing, too much, half of it, or no text at all.

use serde_json::json;

use crate::observe::{peak_memory, until, until_gone};
use crate::test_gateway::TestGateway;

/// Prints so many million times the letter x.
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
fn case_42_no_output_has_a_wording_of_its_own() {
    for line in [codex("exit 0"), text("echo; echo '  '")] {
        assert_eq!(line.chat("hi").send().content(), "No output from CLI.");
        let streamed = line.chat("hi").streamed().send();
        assert_eq!(streamed.streamed_text(), "No output from CLI.");
        assert!(streamed.is_done());
    }
}

#[test]
fn only_the_last_block_of_mixed_output_is_the_answer() {
    let script = "printf '[log] start\\n[tool] ls\\n\\nThe answer\\nin two lines\\n\\n'";
    let entry = json!({"driver": "text", "command": "plain", "normalize": "last_block"});
    let gateway = TestGateway::new().cli("plain", script).model("m", entry).start();
    assert_eq!(gateway.chat("hi").send().content(), "The answer\nin two lines");
    assert_eq!(gateway.chat("hi").streamed().send().streamed_text(), "The answer\nin two lines");
}

#[test]
fn case_27_escapes_are_no_part_of_an_answer() {
    let gateway = text("printf '\\033[1;31mred\\033[0m \\033]0;title\\007and plain\\n'");
    assert_eq!(gateway.chat("hi").send().content(), "red and plain");
}

#[test]
fn case_48_a_cli_that_dies_in_the_middle_of_a_line_is_a_failure() {
    let gateway = codex("codex_says one; printf '{\"type\":\"item.comp'; kill -9 $$");
    let reply = gateway.chat("hi").send();
    assert!(matches!(reply.status, 500 | 504), "{reply:?}");
    assert!(reply.json()["error"]["message"].as_str().unwrap().starts_with("CLI failed: "), "{reply:?}");
    assert!(reply.json()["error"]["detail"].as_str().unwrap().contains("SIGKILL"), "{reply:?}");
}

#[test]
fn case_43_a_hundred_megabytes_are_bounded() {
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
fn case_43_a_cli_that_never_stops_talking_is_stopped() {
    let gateway = text("tell pid $$; exec cat /dev/zero");
    let error = gateway.chat("hi").send().error(500);
    assert!(error["detail"].as_str().unwrap().contains("larger than 64 MiB"), "{error}");
    until_gone(&[gateway.wait_for_pid("pid")]);
}

#[test]
fn case_43_an_endless_line_does_not_cost_the_answer() {
    let gateway = codex(
        "printf '{\"type\":\"item.completed\",\"item\":{\"id\":\"i\",\"type\":\"agent_message\",\"text\":\"'; flood 20; \
         printf '\"}}\\n'; codex_answers done",
    );
    assert_eq!(gateway.chat("hi").send().content(), "done");
}

#[test]
fn case_44_a_flood_on_stderr_does_not_stop_the_answer() {
    let gateway = codex("flood 10 >&2; codex_answers done");
    assert_eq!(gateway.chat("hi").send().content(), "done");
}

#[test]
fn case_47_bytes_that_are_no_text_are_replaced() {
    let gateway = text("printf 'caf\\303\\251 \\377 end\\n'");
    assert_eq!(gateway.chat("hi").send().content(), "café \u{fffd} end");
    let gateway = codex("codex_answers \"$(printf 'caf\\303\\251 \\377 end')\"");
    assert_eq!(gateway.chat("hi").send().content(), "café \u{fffd} end");
}

#[test]
fn case_47_a_character_that_comes_in_two_pieces_is_one() {
    let gateway = text("printf 'caf\\303'; sleep 0.1; printf '\\251\\n'");
    assert_eq!(gateway.chat("hi").send().content(), "café");
    assert_eq!(gateway.chat("hi").streamed().send().streamed_text(), "café");
}

#[test]
fn ten_thousand_lines_arrive_as_they_are() {
    let gateway = text("i=0; while [ $i -lt 10000 ]; do echo \"line $i é\"; i=$((i + 1)); done");
    let expected: Vec<String> = (0..10_000).map(|number| format!("line {number} é")).collect();
    assert!(gateway.chat("hi").send().content() == expected.join("\n"));
    assert!(gateway.chat("hi").streamed().send().streamed_text() == expected.join("\n"));
}

#[test]
fn a_cli_stands_still_when_its_client_does_not_read() {
    let line = text("tell pid $$; exec cat /dev/zero");
    let _unread = line.chat("hi").streamed().open();
    let pid = line.wait_for_pid("pid");
    let written = || {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap().parse::<u64>().unwrap()
    };
    let mut before = 0;
    until("it can write no more", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let now = written();
        now == std::mem::replace(&mut before, now) && now > 0
    });
    // It stands still at 32 MiB; how much further it gets until then is a matter of how busy the machine is.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(state.contains(") T "), "{state}");
    assert!(written() < 400_000_000, "{}", written());
    let peak = peak_memory(line.gateway_pid()) / 1024;
    assert!(peak < 100, "{peak} MiB");
}

#[test]
fn case_48_an_event_nobody_knows_is_counted_and_said_once() {
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
    assert!(shown.contains("not known here: \"thread.dreamt\", 3 times"), "{shown}");
}
