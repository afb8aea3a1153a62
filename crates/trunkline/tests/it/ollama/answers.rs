//! Answers: whole, streamed, failed.

use serde_json::{Value, json};

use super::{PNG, chat, error, gateway, generate, lines, open, post, sum};
use crate::fake_llm::{FakeLlm, stream, whole};
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

/// Some text, a tool, and the answer.
const TOOL: &str = r#"codex_says 'Let me look.'
printf '{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"ls","status":"in_progress"}}\n'
printf '{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"ls","aggregated_output":"README.md","exit_code":0,"status":"completed"}}\n'
codex_says 'There is one.'; codex_ends"#;

/// A gateway whose model `m` is a service.
fn upstream(service: &FakeLlm) -> TestGateway {
    let router =
        format!("providers:\n- name: m\n  type: api\n  config: {{base_url: '{}/', model: gpt-x}}\n", service.url);
    TestGateway::new().config("router.yaml", &router).start()
}

#[test]
fn chat_is_streamed_unless_the_request_says_otherwise() {
    let gateway = gateway("note \"$@\"; codex_answers 'Hi there.'").start();
    let asked = json!({"model": "m", "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"},
    ]});
    let reply = post(&gateway, "/api/chat", &asked);
    let streamed = lines(&reply);
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nBe brief.\n\nhello");
    assert_eq!(sum(&streamed, "/message/content"), "Hi there.");
    let (last, before) = streamed.split_last().unwrap();
    assert!(before.iter().all(|line| line["done"] == false && line["message"]["role"] == "assistant"), "{before:?}");
    assert_eq!((&last["done"], &last["done_reason"], &last["model"]), (&json!(true), &json!("stop"), &json!("m")));
    assert_eq!((&last["prompt_eval_count"], &last["eval_count"]), (&json!(3), &json!(2)));
    assert!(last["total_duration"].as_u64().unwrap() > 0 && last["eval_duration"].as_u64().unwrap() > 0, "{last}");
    assert_eq!(last["trunkline"]["run"], json!(reply.header("x-trunkline-run").unwrap()));

    let reply = post(&gateway, "/api/chat/", &chat("hello", json!({"stream": false, "keep_alive": "5m"})));
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let whole = reply.json();
    assert_eq!(whole["message"], json!({"role": "assistant", "content": "Hi there."}));
    assert_eq!((&whole["done"], &whole["trunkline"]["provider"]), (&json!(true), &json!("codex")));
    let time = whole["created_at"].as_str().unwrap();
    assert!(time.len() == 20 && time.starts_with("20") && time.ends_with('Z'), "{time}");
    assert_eq!(reply.header("x-trunkline-provider"), Some("codex"));
}

#[test]
fn generate_answers_a_prompt() {
    let gateway = gateway("note \"$@\"; codex_answers 'Blue.'").start();
    let asked = json!({"system": "Be brief.", "suffix": "x", "context": [1, 2], "options": {"num_ctx": 4096}});
    let reply = post(&gateway, "/api/generate", &generate("Why?", asked));
    assert_eq!(sum(&lines(&reply), "/response"), "Blue.");
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nBe brief.\n\nWhy?");
    let whole = post(
        &gateway,
        "/api/generate",
        &generate("Why?", json!({"system": "Be brief.", "raw": true, "stream": false, "images": [PNG]})),
    )
    .json();
    assert_eq!((&whole["response"], &whole["done_reason"]), (&json!("Blue."), &json!("stop")));
    assert!(gateway.read_note("codex.stdin").contains("Why?") && !gateway.read_note("codex.stdin").contains("brief"));
}

#[test]
fn tools_of_the_agent_are_thinking_unless_it_is_switched_off() {
    let gateway = gateway(TOOL).start();
    for (think, shown) in [(json!(null), true), (json!(true), true), (json!("low"), true), (json!(false), false)] {
        let streamed = lines(&post(&gateway, "/api/chat", &chat("hi", json!({"think": think}))));
        assert_eq!(sum(&streamed, "/message/content"), "Let me look.\n\nThere is one.");
        let thinking = sum(&streamed, "/message/thinking");
        assert_eq!(thinking.contains("[tool]") && thinking.contains("ls"), shown, "{think}: {thinking}");
        let whole = post(&gateway, "/api/generate", &generate("hi", json!({"think": think, "stream": false}))).json();
        assert_eq!(whole["response"], "There is one.");
        assert_eq!(whole["thinking"].as_str(), shown.then_some(thinking.as_str()), "{think}");
    }
}

#[test]
fn conversation_is_continued_by_its_history_and_by_the_header() {
    let script = r#"note "$@"; n=$(counted)
printf '{"type":"thread.started","thread_id":"01a1dc95-8353-7ee2-acbd-3e299086500%s"}\n' "$n"
codex_answers "answer $n""#;
    let gateway = gateway(script).start();
    let first = lines(&post(&gateway, "/api/chat", &chat("one", json!({}))));
    let session = first.last().unwrap()["trunkline"]["session_id"].as_str().unwrap().to_owned();
    let history = json!({"stream": false, "messages": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": sum(&first, "/message/content"), "thinking": "hm"},
        {"role": "user", "content": "two"},
    ]});
    let second = post(&gateway, "/api/chat", &chat("", history)).json();
    assert_eq!(second["message"]["content"], "answer 2");
    assert_eq!(second["trunkline"]["session"]["resumed"], true, "{second}");
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\ntwo");
    let header = format!("x-trunkline-session: {session}\r\n");
    let third = open(&gateway, "POST", "/api/generate", &header, &generate("three", json!({"stream": false}))).finish();
    assert_eq!((third.status, third.header("x-trunkline-session")), (200, Some(session.as_str())));
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nthree");
}

#[test]
fn failure_is_a_status_before_the_first_line_and_a_line_after_it() {
    let gateway =
        gateway("case $(cat) in *late*) codex_says one ;; esac; echo 'Error: invalid api key' >&2; exit 1").start();
    for path in ["/api/chat", "/api/generate"] {
        let body = |text: &str, more: Value| if path == "/api/chat" { chat(text, more) } else { generate(text, more) };
        for more in [json!({}), json!({"stream": false})] {
            let reply = post(&gateway, path, &body("early", more));
            assert!(error(&reply, 500).starts_with("CLI failed: "), "{reply:?}");
            assert_eq!(reply.header("x-should-retry"), Some("false"));
        }
        let streamed = lines(&post(&gateway, path, &body("late", json!({}))));
        let last = streamed.last().unwrap();
        assert!(last["error"].as_str().unwrap().starts_with("CLI failed: "), "{last}");
        assert!(last["trunkline"]["run"].is_string() && last.get("done").is_none(), "{last}");
    }
}

#[test]
fn run_is_cancelled_when_client_disconnects() {
    let gateway = gateway("tell pid $$; codex_says one; await go; codex_says two; codex_ends").start();
    let mut stream = open(&gateway, "POST", "/api/chat", "", &chat("hi", json!({})));
    stream.read_until("\"content\":\"one\"");
    let running = gateway.get("/api/ps").json();
    assert_eq!((&running["models"][0]["name"], &running["models"][0]["size_vram"]), (&json!("m"), &json!(0)));
    drop(stream);
    until_gone(&[gateway.wait_for_pid("pid")]);
    until("the run is cancelled", || gateway.get("/v1/runs").json()["data"][0]["state"] == "cancelled");
    assert_eq!(gateway.get("/api/ps").json(), json!({"models": []}));
}

#[test]
fn repeated_request_is_the_same_run_under_an_idempotency_key() {
    let gateway = gateway("counted >/dev/null; codex_answers ok").start();
    for (path, body) in [
        ("/api/chat", chat("hi", json!({}))),
        ("/api/chat", chat("hi", json!({"stream": false}))),
        ("/api/generate", generate("hi", json!({}))),
    ] {
        let key = format!("idempotency-key: {path}{}\r\n", body.to_string().len());
        let send = || open(&gateway, "POST", path, &key, &body).finish();
        let (first, second) = (send(), send());
        assert_eq!(first.header("x-trunkline-run"), second.header("x-trunkline-run"), "{body}");
        assert_eq!((second.header("idempotent-replayed"), &first.body), (Some("true"), &second.body));
    }
    assert_eq!(gateway.read_note("codex.runs").len(), 3);
}

#[test]
fn tools_options_and_formats_reach_an_upstream_and_calls_come_back() {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}});
    let first = json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]});
    let piece = |arguments: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]});
    let service = FakeLlm::new([
        whole(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls"),
        stream(&[first, piece("{\"city\":"), piece("\"Rome\"}")], "tool_calls"),
        whole(json!({"role": "assistant", "content": "{\"answer\":\"Sunny.\"}"}), "length"),
    ]);
    let gateway = upstream(&service);
    let tools = json!([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]);
    let asked = |stream: bool| {
        chat(
            "Weather?",
            json!({"tools": tools, "stream": stream, "options": {"num_predict": 9, "temperature": 0, "seed": 7}}),
        )
    };
    let calls = json!([{"id": "call_1", "function": {"index": 0, "name": "weather", "arguments": {"city": "Rome"}}}]);
    let reply = post(&gateway, "/api/chat", &asked(false)).json();
    assert_eq!(reply["message"], json!({"role": "assistant", "content": "", "tool_calls": calls}));
    assert_eq!(reply["done_reason"], "stop");
    let sent = service.seen()[0].1.clone();
    assert_eq!((&sent["tools"], &sent["max_tokens"], &sent["seed"]), (&tools, &json!(9), &json!(7)));
    assert_eq!((&sent["model"], &sent["temperature"]), (&json!("gpt-x"), &json!(0)));
    let streamed = lines(&post(&gateway, "/api/chat", &asked(true)));
    assert_eq!((streamed.len(), &streamed[0]["message"]["tool_calls"]), (2, &calls), "{streamed:?}");

    let history = json!({"stream": false, "format": {"type": "object"}, "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}]},
        {"role": "tool", "tool_name": "weather", "content": "24 C"},
    ]});
    let last = post(&gateway, "/api/chat", &chat("", history)).json();
    assert_eq!(
        (&last["message"]["content"], &last["done_reason"]),
        (&json!("{\"answer\":\"Sunny.\"}"), &json!("length"))
    );
    let sent = service.seen()[2].1.clone();
    let id = &sent["messages"][1]["tool_calls"][0]["id"];
    assert_eq!(
        sent["messages"],
        json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}},
            ]},
            {"role": "tool", "content": "24 C", "tool_call_id": id},
        ])
    );
    let format = json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}});
    assert_eq!(sent["response_format"], format);
}
