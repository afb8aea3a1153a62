//! Content of chat requests and answers other than plain text: usage, reasoning, images and system messages.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::observe::until;
use crate::test_gateway::TestGateway;

fn claude() -> TestGateway {
    TestGateway::new()
        .cli("claude", "note \"$@\"; replay claude/slow_streamjson_partial")
        .model("m", json!({"driver": "claude"}))
        .start()
}

fn codex(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start()
}

#[test]
fn usage_includes_cached_tokens_when_the_cli_reports_them() {
    let expected = json!({"prompt_tokens": 4312, "completion_tokens": 6, "total_tokens": 4318,
        "prompt_tokens_details": {"cached_tokens": 4000}});
    let gateway = claude();
    let reply = gateway.chat("hi").send().json();
    assert_eq!(reply["usage"], expected);
    assert!(reply["trunkline"]["usage_estimated"].is_null(), "{reply}");
    let streamed = gateway.chat("hi").streamed().with("stream_options", json!({"include_usage": true})).send();
    let frames = streamed.frames();
    let last = frames.last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &expected));
    assert!(streamed.is_done());
    let without = gateway.chat("hi").streamed().send().frames();
    assert!(without.iter().all(|frame| frame["usage"].is_null()));
}

#[test]
fn usage_is_marked_as_estimated_when_the_cli_reports_none() {
    let gateway =
        TestGateway::new().cli("plain", "echo eight").model("m", json!({"driver": "text", "command": "plain"})).start();
    let reply = gateway.chat("four").send().json();
    let prompt_tokens = "--- USER TASK ---\nfour".len().div_ceil(4);
    assert_eq!(
        (&reply["usage"]["prompt_tokens"], &reply["usage"]["completion_tokens"]),
        (&json!(prompt_tokens), &json!(2))
    );
    assert_eq!(reply["trunkline"]["usage_estimated"], true);
}

#[test]
fn reasoning_and_tools_are_streamed_but_are_no_part_of_the_answer() {
    let gateway = codex("replay codex/multi");
    let answer = "Hello from the mock.\nSecond line éè 你好 🦀.";
    assert_eq!(gateway.chat("hi").send().content(), answer);
    let streamed = gateway.chat("hi").streamed().send();
    assert!(streamed.streamed_text().ends_with(answer), "{}", streamed.body);
    let frames = streamed.frames();
    let seen: String =
        frames.iter().filter_map(|frame| frame["choices"][0]["delta"]["reasoning_content"].as_str()).collect();
    assert!(seen.contains("cat README.md"), "{seen:?}");
}

#[test]
fn image_is_a_private_file_that_exists_while_codex_runs() {
    let gateway =
        codex("note \"$@\"; cat \"$3\" >\"$seen/picture\"; ls -l \"$3\" >\"$seen/mode\"; replay codex/reasoning");
    let url = "data:image/png;base64,iVBORw0KGgo=";
    gateway.chat("what is this?").image(url).send().content();
    let argv = gateway.argv("codex");
    assert_eq!((argv[1].as_str(), argv[3].as_str()), ("-i", "--json"), "{argv:?}");
    assert!(argv[2].ends_with(".png"), "{argv:?}");
    assert_eq!(fs::read(gateway.path("seen/picture")).unwrap(), b"\x89PNG\r\n\x1a\n");
    assert!(gateway.read_note("mode").starts_with("-rw-------"), "{}", gateway.read_note("mode"));
    until("the image is deleted", || !Path::new(&argv[2]).exists());
}

#[test]
fn image_is_a_bad_request_when_the_cli_takes_none() {
    let gateway = claude();
    let error = gateway.chat("what is this?").image("data:image/png;base64,iVBORw0KGgo=").send().error(400);
    assert!(error["message"].as_str().unwrap().contains("claude takes no pictures"), "{error}");
    let error = gateway.chat("hi").image("https://example.org/cat.png").send().error(400);
    assert_eq!(error["code"], "invalid_image_url");
}

#[test]
fn system_messages_are_passed_to_claude_in_a_private_file() {
    let script = "while [ $# -gt 0 ]; do case $1 in --append-system-prompt-file) ls -l \"$2\" >\"$seen/mode\"; \
                  cat \"$2\" >\"$seen/system\"; printf %s \"$2\" >\"$seen/path\";; esac; shift; done; note; \
                  replay claude/slow_streamjson_partial";
    let gateway = TestGateway::new()
        .cli("claude", script)
        .model("m", json!({"driver": "claude", "systemPrompt": "House rules."}))
        .start();
    gateway.chat("hi").preceded_by("system", "You are terse.").send().content();
    assert_eq!(gateway.read_note("system"), "House rules.\n\nYou are terse.");
    assert!(gateway.read_note("mode").starts_with("-rw-------"), "{}", gateway.read_note("mode"));
    assert_eq!(gateway.read_note("claude.stdin"), "--- USER TASK ---\nhi");
    until("the file is deleted", || !Path::new(&gateway.read_note("path")).exists());
}

#[test]
fn system_messages_are_put_above_the_task_for_codex() {
    let gateway = codex("note \"$@\"; replay codex/reasoning");
    gateway.chat("hi").preceded_by("developer", "You are terse.").send().content();
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nYou are terse.\n\nhi");
}
