//! Answers: whole, streamed, failed, counted; and models.

use serde_json::{Value, json};

use super::{SLOW, ask, body, error, gateway, get, grammar, message, post, text};
use crate::fake_llm::{FakeLlm, stream, whole};
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

/// Some text, a tool, and the answer.
const TOOL: &str = r#"codex_says 'Let me look.'
printf '{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"ls","status":"in_progress"}}\n'
printf '{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"ls","aggregated_output":"README.md","exit_code":0,"status":"completed"}}\n'
codex_says 'There is one.'; codex_ends"#;

#[test]
fn whole_answer_has_the_receipt() {
    let gateway = gateway("note \"$@\"; codex_answers 'Hi there.'").start();
    let system = json!([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]);
    let asked = body("hello you", json!({"system": system}));
    let expected = json!([{"type": "text", "text": "Hi there."}]);
    for path in ["/v1/messages", "/v1/messages/", "/messages", "/messages/", "/v1/messages?beta=true"] {
        let headers = "anthropic-version: 2023-06-01\r\nanthropic-beta: a-2026-01-01,b-2026-02-02\r\n";
        let reply = ask(&gateway, path, headers, &asked).finish();
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        let message = reply.json();
        grammar::check_message(&message);
        let run = reply.header("x-trunkline-run").unwrap();
        assert_eq!(message["id"], format!("msg_{}", run.replace('-', "")));
        assert_eq!((&message["content"], &message["stop_reason"]), (&expected, &json!("end_turn")));
        assert_eq!((&message["model"], &message["usage"]["output_tokens"]), (&json!("m"), &json!(2)));
        assert_eq!((&message["trunkline"]["run"], &message["trunkline"]["provider"]), (&json!(run), &json!("codex")));
        assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
    }
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nBe brief.\n\nhello you");
}

#[test]
fn stream_keeps_to_the_grammar_and_shows_reasoning_if_asked() {
    let gateway = gateway(TOOL).start();
    for (thinking, kinds) in [
        (json!({"type": "adaptive"}), &["text", "thinking", "text"][..]),
        (json!({"type": "enabled", "budget_tokens": 1024}), &["text", "thinking", "text"]),
        (json!({"type": "disabled"}), &["text"]),
        (Value::Null, &["text"]),
    ] {
        let asked = |stream: bool| body("what is here?", json!({"stream": stream, "thinking": thinking}));
        let reply = post(&gateway, &asked(true));
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        assert!(reply.body.starts_with("event: message_start\ndata: "), "{}", reply.body);
        let streamed = grammar::check(&reply.frames());
        let found: Vec<&str> =
            streamed["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
        assert_eq!((found.as_slice(), text(&streamed).as_str()), (kinds, "Let me look.\n\nThere is one."));
        assert_eq!(message(&gateway, &asked(false))["content"], streamed["content"]);
        assert!(!reply.body.contains("[DONE]"));
    }
}

#[test]
fn session_is_found_by_the_history() {
    let script = r#"note "$@"; n=$(counted)
printf '{"type":"thread.started","thread_id":"01a1dc95-8353-7ee2-acbd-3e2990865001"}\n'; codex_answers "answer $n""#;
    let gateway = gateway(script).start();
    let session = |message: &Value| {
        let session = &message["trunkline"]["session"];
        (message["trunkline"]["session_id"].as_str().unwrap().to_owned(), session["resumed"] == true)
    };
    let billing = |n: u32| json!({"type": "text", "text": format!("x-anthropic-billing-header: cch={n};")});
    let rest = json!({"type": "text", "text": "Be brief."});
    let asked = |messages: Value, n: u32| json!({"model": "m", "system": [billing(n), rest], "messages": messages});
    let first = message(&gateway, &asked(json!([{"role": "user", "content": "one"}]), 1));
    let history = json!([
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [{"type": "text", "text": "two"}]},
    ]);
    let second = message(&gateway, &asked(history, 2));
    assert_eq!((session(&second), text(&second).as_str()), ((session(&first).0, true), "answer 2"));
    assert!(gateway.read_note("codex.stdin").ends_with("two"), "{}", gateway.read_note("codex.stdin"));
}

#[test]
fn failure_is_a_status_before_the_first_event_and_an_event_after_it() {
    let gateway =
        gateway("case $(cat) in *late*) codex_says one ;; esac; echo 'Error: invalid api key' >&2; exit 1").start();
    for stream in [true, false] {
        let reply = post(&gateway, &body(format!("early {stream}"), json!({"stream": stream})));
        let error = error(&reply, 500);
        assert_eq!((&error["type"], &error["code"]), (&json!("api_error"), &json!("authentication")));
        assert_eq!(reply.header("x-should-retry"), Some("false"));
        assert_eq!(reply.json()["trunkline"]["run"].as_str(), reply.header("x-trunkline-run"));
    }
    let frames = post(&gateway, &body("late", json!({"stream": true}))).frames();
    let failed = grammar::check(&frames);
    assert_eq!((&failed["type"], &failed["error"]["type"]), (&json!("error"), &json!("api_error")));
    assert!(failed["error"]["message"].as_str().unwrap().starts_with("CLI failed: "), "{failed}");
    assert!(failed["trunkline"]["run"].is_string(), "{failed}");
}

#[test]
fn run_is_cancelled_when_client_disconnects() {
    let gateway = gateway(SLOW).start();
    let mut stream = ask(&gateway, "/v1/messages", "", &body("hi", json!({"stream": true})));
    stream.read_until("text_delta");
    drop(stream);
    until_gone(&[gateway.wait_for_pid("pid")]);
    until("the run is cancelled", || gateway.get("/v1/runs").json()["data"][0]["state"] == "cancelled");
}

#[test]
fn run_continues_when_client_disconnects_and_asked_for_it() {
    let gateway = gateway(SLOW).start();
    let asked = body("hi", json!({"stream": true, "trunkline": {"on_disconnect": "detach"}}));
    let mut stream = ask(&gateway, "/v1/messages", "", &asked);
    stream.read_until("text_delta");
    drop(stream);
    gateway.leave_note("go");
    until("the run is finished", || gateway.get("/v1/runs").json()["data"][0]["state"] == "finished");
}

#[test]
fn repeated_request_is_the_same_message_under_an_idempotency_key() {
    let gateway = gateway("counted >/dev/null; codex_answers ok").start();
    for stream in [true, false] {
        let key = format!("idempotency-key: {stream}\r\n");
        let send = || ask(&gateway, "/v1/messages", &key, &body("hi", json!({"stream": stream}))).finish();
        let (first, second) = (send(), send());
        assert_eq!(first.header("x-trunkline-run"), second.header("x-trunkline-run"));
        assert_eq!((second.header("idempotent-replayed"), &first.body), (Some("true"), &second.body));
        let other = ask(&gateway, "/v1/messages", &key, &body("other", json!({}))).finish();
        assert_eq!(error(&other, 422)["type"], "invalid_request_error");
    }
    assert_eq!(gateway.read_note("codex.runs").len(), 2);
}

#[test]
fn tools_reach_an_upstream_and_calls_come_back() {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}});
    let first = json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]});
    let piece = |arguments: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]});
    let service = FakeLlm::new([
        whole(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls"),
        stream(&[json!({"content": "Hm."}), first, piece("{\"city\":"), piece("\"Rome\"}")], "tool_calls"),
        whole(json!({"role": "assistant", "content": "Sunny."}), "length"),
    ]);
    let router =
        format!("providers:\n- name: m\n  type: api\n  config: {{base_url: '{}/', model: gpt-x}}\n", service.url);
    let gateway = TestGateway::new().config("router.yaml", &router).start();
    let tools = json!([
        {"name": "weather", "description": "d", "input_schema": {"type": "object"}},
        {"type": "web_search_20260209", "name": "web_search"},
    ]);
    let more = |stream: bool| {
        json!({"tools": tools, "tool_choice": {"type": "tool", "name": "weather"},
        "stream": stream, "stop_sequences": ["END"], "temperature": 0})
    };
    let answered = message(&gateway, &body("Weather?", more(false)));
    let block = json!({"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}});
    assert_eq!((&answered["content"], &answered["stop_reason"]), (&json!([block]), &json!("tool_use")));
    let usage = json!({"input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 2,
        "output_tokens": 3});
    assert_eq!(answered["usage"], usage);
    let sent = service.seen()[0].1.clone();
    let function = json!({"name": "weather", "description": "d", "parameters": {"type": "object"}});
    assert_eq!(sent["tools"], json!([{"type": "function", "function": function}]));
    assert_eq!(sent["tool_choice"], json!({"type": "function", "function": {"name": "weather"}}));
    assert_eq!((&sent["stop"], &sent["temperature"]), (&json!(["END"]), &json!(0)));

    let streamed = grammar::check(&post(&gateway, &body("Weather?", more(true))).frames());
    assert_eq!(streamed["content"], json!([{"type": "text", "text": "Hm."}, block]));

    let history = json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": streamed["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "24 C"}]},
    ]);
    let last = message(&gateway, &json!({"model": "m", "max_tokens": 5, "messages": history}));
    assert_eq!((text(&last).as_str(), &last["stop_reason"]), ("Sunny.", &json!("max_tokens")));
    assert_eq!(
        service.seen()[2].1["messages"],
        json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "Hm.", "tool_calls": [call]},
            {"role": "tool", "content": "24 C", "tool_call_id": "call_1"},
        ])
    );
}

#[test]
fn tokens_are_estimated_without_a_run() {
    let gateway = gateway("tell ran 1; codex_answers ok").start();
    for path in ["/v1/messages/count_tokens", "/messages/count_tokens/", "/v1/messages/count_tokens?beta=true"] {
        let counted = ask(&gateway, path, "", &body("12345678", json!({"system": "1234"}))).finish();
        assert_eq!((counted.status, counted.json()), (200, json!({"input_tokens": 3})), "{path}");
    }
    let count = |body: &Value| ask(&gateway, "/v1/messages/count_tokens", "", body).finish();
    let unknown = count(&body("hi", json!({"model": "unknown"})));
    assert_eq!(error(&unknown, 404)["type"], "not_found_error");
    assert_eq!(error(&count(&json!({"model": "m"})), 400)["param"], "messages");
    assert!(!gateway.path("seen/ran").exists(), "nothing ran");
}

#[test]
fn models_are_listed_in_the_shape_of_the_client() {
    let gateway = gateway("codex_answers ok").start();
    let version = "anthropic-version: 2023-06-01\r\n";
    let list = get(&gateway, "/v1/models?limit=20", version).json();
    let names: Vec<&str> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert!(names.contains(&"m"), "{list}");
    assert_eq!((list["first_id"].as_str(), list["last_id"].as_str()), (names.first().copied(), names.last().copied()));
    assert_eq!(list["has_more"], false);
    let model = get(&gateway, "/v1/models/m", version).json();
    assert_eq!((&model["type"], &model["id"], &model["display_name"]), (&json!("model"), &json!("m"), &json!("m")));
    let created = model["created_at"].as_str().unwrap();
    assert!(created.len() == 20 && created.starts_with("20") && created.ends_with('Z'), "{created}");
    assert!(list["data"].as_array().unwrap().contains(&model));
    let unknown = get(&gateway, "/v1/models/unknown", version);
    assert_eq!(error(&unknown, 404)["type"], "not_found_error");
    assert_eq!(get(&gateway, "/v1/models", "").json()["object"], "list");
}
