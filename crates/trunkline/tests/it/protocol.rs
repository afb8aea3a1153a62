//! Executables that implement the provider protocol, used as models.

use std::fs;

use serde_json::{Value, json};

use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

/// A gateway with one provider, `p`, that runs this script.
fn provider(script: &str, config: &str) -> TestGateway {
    TestGateway::new().cli("p", script).config("router.yaml", &yaml(config)).start()
}

fn yaml(config: &str) -> String {
    format!(
        "providers:\n- name: p\n  type: cli\n  config: {{path: p{config}}}\nrouting: {{max_retries: 0, backoff: 1ms}}\n"
    )
}

#[test]
fn request_has_exactly_the_fields_the_client_sent() {
    let gateway =
        provider("note \"$@\"; answers \"$2\" done", ", args: [--mine], model: llama, options: {think: false}");
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    gateway
        .chat("What is 2+2?")
        .model("p")
        .preceded_by("system", "You are terse.")
        .preceded_by("user", "Hi")
        .preceded_by("assistant", "Hello")
        .with("max_tokens", 0)
        .with("temperature", 0)
        .with("top_p", json!(0.9))
        .with("tools", tools.clone())
        .with("metadata", json!({"task_id": "abc"}))
        .send()
        .content();
    let sent: Value = serde_json::from_str(&gateway.read_note("p.stdin")).unwrap();
    let expected = json!({
        "prompt": "What is 2+2?", "system_prompt": "You are terse.",
        "max_tokens": 0, "temperature": 0, "top_p": 0.9, "tools": tools,
        "context": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
        "config": {"model": "llama", "think": false}, "metadata": {"task_id": "abc"},
    });
    assert_eq!(sent, expected);
    assert_eq!(gateway.argv("p"), ["--mine", "generate"]);
    gateway.chat("hi").model("p/qwen3:8b").streamed().send();
    let sent: Value = serde_json::from_str(&gateway.read_note("p.stdin")).unwrap();
    assert_eq!(sent, json!({"prompt": "hi", "config": {"model": "qwen3:8b", "think": false}}));
    assert_eq!(gateway.argv("p"), ["--mine", "stream"]);
}

#[test]
fn executable_answers_whole_and_streamed() {
    let gateway = provider("cat >/dev/null; answers \"$1\" done", "");
    let whole = gateway.chat("hi").model("p").send();
    assert_eq!((whole.content().as_str(), whole.header("x-trunkline-provider")), ("done", Some("p")));
    let extension = &whole.json()["trunkline"];
    assert_eq!(extension["metadata"], json!({"latency": 1, "model": "fake", "provider": "fake"}));
    assert!(extension["attempts"][0]["duration_ms"].is_u64(), "{extension}");
    let usage = &whole.json()["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(3), &json!(2)));
    let streamed =
        gateway.chat("hi").model("p").streamed().with("stream_options", json!({"include_usage": true})).send();
    assert_eq!((streamed.streamed_text().as_str(), streamed.is_done()), ("done", true));
    assert_eq!(streamed.frames().last().unwrap()["usage"]["total_tokens"], 5);
}

#[test]
fn deltas_are_streamed_as_they_are_printed() {
    let script = "cat >/dev/null; printf '{\"content\":\"one\",\"delta\":\"one\",\"done\":false}\\n'; await go; \
                  printf '{\"content\":\"one two\",\"delta\":\" two\",\"done\":true}\\n'";
    let gateway = provider(script, "");
    let mut stream = gateway.chat("hi").model("p").streamed().open();
    stream.read_until("\"content\":\"one\"");
    gateway.leave_note("go");
    assert_eq!(stream.finish().streamed_text(), "one two");
}

#[test]
fn stream_ends_with_an_error_when_final_event_is_missing() {
    let gateway = provider("cat >/dev/null; printf '{\"content\":\"He\",\"delta\":\"He\",\"done\":false}\\n'", "");
    let reply = gateway.chat("hi").model("p").streamed().send();
    assert_eq!((reply.status, reply.is_done()), (200, false));
    let frames = reply.frames();
    assert_eq!(frames[1]["choices"][0]["delta"]["content"], "He");
    let last = frames.last().unwrap();
    assert_eq!(last["error"]["detail"], "p ended without its final event", "{last}");
    assert_eq!(last["trunkline"]["attempts"].as_array().unwrap().len(), 1);
}

#[test]
fn run_fails_when_exit_status_is_not_zero_despite_an_answer() {
    let gateway =
        provider("cat >/dev/null; answers \"$1\" done; echo 'Error: 503 Service Unavailable' >&2; exit 3", "");
    let error = gateway.chat("hi").model("p").send().error(500);
    assert_eq!((&error["code"], &error["detail"]), (&json!("server"), &json!("Error: 503 Service Unavailable")));
    let streamed = gateway.chat("hi").model("p").streamed().send();
    assert!(!streamed.is_done() && streamed.body.contains("\"code\":\"server\""), "{}", streamed.body);
}

#[test]
fn stderr_is_not_the_error_when_stdout_has_one() {
    let gateway = provider("cat >/dev/null; echo 'INFO rate limit headroom: 429 left' >&2; refuses \"$1\" odd", "");
    let error = gateway.chat("hi").model("p").send().error(500);
    assert_eq!((&error["code"], &error["detail"]), (&json!("unknown"), &json!("odd")));
}

#[test]
fn executable_is_killed_when_it_exceeds_its_timeout() {
    let gateway = provider("cat >/dev/null; tell pid $$; hang", ", timeout: 200ms");
    let error = gateway.chat("hi").model("p").send().error(504);
    assert_eq!((&error["code"], &error["detail"]), (&json!("timeout"), &json!("Query timed out")));
    until_gone(&[gateway.wait_for_pid("pid")]);
}

#[test]
fn answer_is_returned_when_executable_does_not_exit() {
    let gateway = provider("cat >/dev/null; answers \"$1\" done; tell pid $$; hang", "");
    assert_eq!(gateway.chat("hi").model("p").send().content(), "done");
    until_gone(&[gateway.wait_for_pid("pid")]);
}

#[test]
fn next_request_uses_the_new_executable_and_configuration_when_they_change() {
    let gateway = provider("cat >/dev/null; answers \"$1\" first", "");
    assert_eq!(gateway.chat("hi").model("p").send().content(), "first");
    let gateway = gateway.cli("p", "cat >/dev/null; answers \"$1\" second");
    assert_eq!(gateway.chat("hi").model("p").send().content(), "second");
    let gateway = gateway.cli("q", "cat >/dev/null; answers \"$1\" third");
    fs::write(gateway.path("config/router.yaml"), yaml("").replace("path: p", "path: q")).unwrap();
    until("the new executable answers", || gateway.chat("hi").model("p").send().content() == "third");
    fs::write(gateway.path("config/router.yaml"), "providers: [").unwrap();
    until("the broken configuration is reported", || gateway.log().contains("the last good one stays"));
    assert_eq!(gateway.chat("hi").model("p").send().content(), "third");
}

#[test]
fn finish_reasons_are_mapped_to_openai_names() {
    let script = "cat >/dev/null; printf '{\"content\":\"x\",\"finish_reason\":\"%s\"}\\n' \"$FINISH\"";
    for (reason, finish) in [("stop", "stop"), ("length", "length"), ("tool_use", "stop")] {
        let gateway = provider(script, &format!(", env: {{FINISH: {reason}}}"));
        let reply = gateway.chat("hi").model("p").send().json();
        assert_eq!(reply["choices"][0]["finish_reason"], finish);
    }
}

#[test]
fn models_json_can_use_an_executable_as_driver() {
    let gateway = TestGateway::new()
        .cli("p", "note \"$@\"; answers \"$1\" done")
        .config("router.yaml", &yaml(", model: llama"))
        .model("m", json!({"driver": "p", "systemPrompt": "House rules."}))
        .file("AGENTS.md", "Always answer PONG.\n")
        .start();
    assert_eq!(gateway.chat("hi").send().content(), "done");
    let sent: Value = serde_json::from_str(&gateway.read_note("p.stdin")).unwrap();
    let expected = json!({"prompt": "hi", "system_prompt": "Always answer PONG.\n\nHouse rules.",
        "config": {"model": "llama"}});
    assert_eq!(sent, expected);
    assert_eq!(gateway.read_note("p.cwd").trim_end(), gateway.repo().display().to_string());
}

#[test]
fn secrets_are_masked_in_errors_logs_and_reports() {
    let gateway = TestGateway::new()
        .env("SHHH", "hunter2-topsecret")
        .cli("p", "read -r request; refuses \"$1\" \"401 bad key $MY_API_KEY in ${request##*api_key}\"")
        .config("router.yaml", &yaml(", env: {MY_API_KEY: '${SHHH}'}, options: {api_key: '${SHHH}'}"))
        .start();
    let reply = gateway.chat("hi").model("p").send();
    assert_eq!(reply.error(500)["code"], "authentication");
    let check = gateway.run(&["check"]).stdout;
    for shown in [&reply.body, &gateway.log(), &check] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    // A secret from a reloaded configuration is masked at once.
    let changed = yaml(", env: {MY_API_KEY: another-topsecret}, options: {api_key: another-topsecret}");
    fs::write(gateway.path("config/router.yaml"), changed).unwrap();
    until("the configuration is reloaded", || gateway.log().contains("configuration reloaded"));
    let reply = gateway.chat("hi").model("p").send();
    assert!(reply.body.contains("bad key ***") && !reply.body.contains("another"), "{}", reply.body);
}

#[test]
fn answer_is_streamed_as_one_delta_when_executable_only_generates() {
    for refusal in ["echo \"unknown command: $1\" >&2; exit 2", "exit 64", "refuses stream 'unknown command'", "exit 0"]
    {
        let script = format!(
            "cat >/dev/null; counted >/dev/null; case $1 in generate) answers generate done ;; *) {refusal} ;; esac"
        );
        let gateway = provider(&script, "");
        let reply = gateway.chat("hi").model("p").streamed().send();
        assert_eq!((reply.streamed_text().as_str(), reply.is_done()), ("done", true), "{refusal}: {}", reply.body);
        let last = reply.frames().pop().unwrap();
        assert_eq!(last["trunkline"]["attempts"].as_array().map(Vec::len), Some(1), "{last}");
        assert_eq!(gateway.read_note("p.runs").lines().count(), 2, "{refusal}");
    }
}

#[test]
fn executable_is_not_run_again_when_its_stream_failed_for_another_reason() {
    for failure in ["refuses stream '401 bad key'", "echo 'connect ECONNREFUSED 127.0.0.1:1' >&2; exit 1"] {
        let gateway = provider(&format!("cat >/dev/null; counted >/dev/null; {failure}"), "");
        let reply = gateway.chat("hi").model("p").streamed().send();
        assert!(!reply.is_done(), "{}", reply.body);
        assert_eq!(gateway.read_note("p.runs").lines().count(), 1, "{failure}");
    }
}

#[test]
fn tool_calls_of_an_executable_reach_the_client() {
    let script = r#"cat >/dev/null
calls='[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]'
case $1 in
generate) printf '{"content":"","tool_calls":%s,"finish_reason":"tool_use"}\n' "$calls" ;;
stream) printf '{"content":"","delta":"","tool_calls":%s,"done":true,"finish_reason":"tool_use"}\n' "$calls" ;;
esac"#;
    let gateway = provider(script, "");
    let function = json!({"name": "weather", "arguments": "{\"city\":\"Oslo\"}"});
    let whole = gateway.chat("hi").model("p").send().json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{whole}");
    assert_eq!(choice["message"]["content"], Value::Null);
    assert_eq!(choice["message"]["tool_calls"], json!([{"id": "c1", "type": "function", "function": function}]));
    let streamed = gateway.chat("hi").model("p").streamed().send();
    assert!(streamed.is_done(), "{}", streamed.body);
    let frames = streamed.frames();
    let call = frames.iter().find_map(|frame| frame.pointer("/choices/0/delta/tool_calls/0")).unwrap();
    assert_eq!((&call["id"], &call["function"]), (&json!("c1"), &function));
    assert!(frames.iter().any(|frame| frame["choices"][0]["finish_reason"] == "tool_calls"), "{}", streamed.body);
}

#[test]
fn turn_fails_and_names_the_member_when_a_line_has_the_wrong_type() {
    let script = r#"cat >/dev/null; printf '{"content":42,"delta":"a","done":true}\n'"#;
    let gateway = provider(script, "");
    let wrong = "it printed a line that is not of the protocol: `content` is a number, not a string";
    assert_eq!(gateway.chat("hi").model("p").send().error(500)["detail"], wrong);
    let streamed = gateway.chat("hi").model("p").streamed().send();
    assert!(!streamed.is_done() && streamed.body.contains("is a number, not a string"), "{}", streamed.body);
}
