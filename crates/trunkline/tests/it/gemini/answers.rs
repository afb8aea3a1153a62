//! Answers: whole, streamed, failed, counted; and models.

use serde_json::{Value, json};

use super::{ARRAY, COUNT, EVENTS, SLOW, WHOLE, ask, body, error, gateway, grammar, parts, post, respond, text};
use crate::fake_llm::{FakeLlm, stream, whole};
use crate::http::send_raw;
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
    let asked = body("hello you", json!({"systemInstruction": {"parts": [{"text": "Be brief."}]}}));
    for path in [WHOLE, "/v1beta/models/m%3AgenerateContent", "/v1/models/m:generateContent?alt=json"] {
        let reply = post(&gateway, path, &asked);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        let response = reply.json();
        grammar::check_response(&response);
        let run = reply.header("x-trunkline-run").unwrap();
        assert_eq!((&response["responseId"], &response["trunkline"]["run"]), (&json!(run), &json!(run)));
        assert_eq!((parts(&response), &response["modelVersion"]), (&json!([{"text": "Hi there."}]), &json!("m")));
        assert_eq!(response["usageMetadata"]["totalTokenCount"], 5);
    }
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nBe brief.\n\nhello you");
}

#[test]
fn both_forms_of_a_stream_are_the_whole_answer() {
    let gateway = gateway(TOOL).start();
    for (thoughts, count) in [(true, 3), (false, 1)] {
        let config = json!({"thinkingConfig": {"includeThoughts": thoughts}});
        let asked = body("what is here?", json!({"generationConfig": config}));
        let events = post(&gateway, EVENTS, &asked);
        assert_eq!(events.header("content-type"), Some("text/event-stream"));
        assert!(!events.body.contains("[DONE]") && !events.body.contains("\n:"), "{}", events.body);
        let streamed = grammar::check(&events.frames());
        assert_eq!(text(&streamed), "Let me look.\n\nThere is one.");
        assert_eq!(parts(&streamed).as_array().unwrap().len(), count, "{streamed}");
        assert_eq!(parts(&respond(&gateway, &asked)), parts(&streamed));
        let array = post(&gateway, ARRAY, &asked);
        assert_eq!(array.header("content-type"), Some("application/json"));
        assert_eq!(parts(&grammar::check(array.json().as_array().unwrap())), parts(&streamed));
    }
}

#[test]
fn session_is_found_by_the_frames_of_a_stream() {
    let script = r#"note "$@"; n=$(counted)
printf '{"type":"thread.started","thread_id":"01a1dc95-8353-7ee2-acbd-3e2990865001"}\n'
codex_says "answer $n"; codex_says more; codex_ends"#;
    let gateway = gateway(script).start();
    let frames = post(&gateway, EVENTS, &body("one", json!({}))).frames();
    let first = grammar::check(&frames);
    // As Google's clients keep them.
    let mut contents = vec![json!({"role": "user", "parts": [{"text": "one"}]})];
    contents.extend(frames.iter().map(|frame| frame["candidates"][0]["content"].clone()));
    contents.push(json!({"role": "user", "parts": [{"text": "two"}]}));
    let second = respond(&gateway, &json!({"contents": contents}));
    let session = |response: &Value| response["trunkline"]["session_id"].as_str().unwrap().to_owned();
    assert_eq!((session(&second), text(&second).as_str()), (session(&first), "answer 2\n\nmore"));
    assert_eq!(second["trunkline"]["session"]["resumed"], true, "{second}");
    assert!(gateway.read_note("codex.stdin").ends_with("two"), "{}", gateway.read_note("codex.stdin"));
}

#[test]
fn failure_is_a_status_before_the_first_frame_and_a_line_after_it() {
    let gateway =
        gateway("case $(cat) in *late*) codex_says one ;; esac; echo 'Error: invalid api key' >&2; exit 1").start();
    for path in [WHOLE, EVENTS, ARRAY] {
        // Each request has a text of its own: a repeated one gets the same error without a run.
        let reply = post(&gateway, path, &body(&format!("early {path}"), json!({})));
        let error = error(&reply, 500, "INTERNAL");
        assert_eq!(error["details"][0]["reason"], "AUTHENTICATION", "{path}");
        assert_eq!(reply.json()["trunkline"]["run"].as_str(), reply.header("x-trunkline-run"));
    }
    let events = post(&gateway, EVENTS, &body("late", json!({})));
    let line = events.body.lines().find(|line| line.starts_with("{\"error\":")).expect("a line with the error");
    let error: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&error["error"]["code"], &error["error"]["status"]), (&json!(500), &json!("INTERNAL")));
    assert!(!events.body.contains("finishReason"), "{}", events.body);
    let array = post(&gateway, ARRAY, &body("late", json!({}))).json();
    assert_eq!(grammar::check(array.as_array().unwrap())["error"], error["error"]);
}

#[test]
fn run_is_cancelled_when_client_disconnects() {
    for path in [EVENTS, ARRAY] {
        let gateway = gateway(SLOW).start();
        let mut stream = ask(&gateway, path, "", &body("hi", json!({})));
        stream.read_until("\"text\":\"one\"");
        drop(stream);
        until_gone(&[gateway.wait_for_pid("pid")]);
        until("the run is cancelled", || gateway.get("/v1/runs").json()["data"][0]["state"] == "cancelled");
    }
}

#[test]
fn repeated_request_is_the_same_response_under_an_idempotency_key() {
    let gateway = gateway("counted >/dev/null; codex_answers ok").model("other", json!({"driver": "codex"})).start();
    for (number, path) in [WHOLE, EVENTS, ARRAY].into_iter().enumerate() {
        let key = format!("idempotency-key: key-{number}\r\n");
        let send = |path: &str| ask(&gateway, path, &key, &body("hi", json!({}))).finish();
        let (first, second) = (send(path), send(path));
        assert_eq!(first.header("x-trunkline-run"), second.header("x-trunkline-run"), "{path}");
        assert_eq!((second.header("idempotent-replayed"), &first.body), (Some("true"), &second.body));
        // The model is in the path: with another one it is another request.
        error(&send(&path.replace("/m:", "/other:")), 422, "INVALID_ARGUMENT");
    }
    assert_eq!(gateway.read_note("codex.runs").len(), 3);
}

#[test]
fn functions_reach_an_upstream_and_calls_come_back() {
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
    let declaration = json!({"name": "weather", "description": "d",
        "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}});
    let asked = body(
        "Weather?",
        json!({"tools": [{"functionDeclarations": [declaration]}, {"googleSearch": {}}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
            "generationConfig": {"temperature": 0, "maxOutputTokens": 9}}),
    );
    let part = json!({"functionCall": {"id": "call_1", "name": "weather", "args": {"city": "Rome"}}});
    let answered = respond(&gateway, &asked);
    assert_eq!((parts(&answered), &answered["candidates"][0]["finishReason"]), (&json!([part]), &json!("STOP")));
    let sent = service.seen()[0].1.clone();
    let function = json!({"name": "weather", "description": "d",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}});
    assert_eq!(sent["tools"], json!([{"type": "function", "function": function}]));
    assert_eq!((&sent["tool_choice"], &sent["temperature"]), (&json!("required"), &json!(0)));
    assert_eq!(sent["max_completion_tokens"], 9);

    let streamed = grammar::check(&post(&gateway, EVENTS, &asked).frames());
    assert_eq!(parts(&streamed), &json!([{"text": "Hm."}, part]));

    let contents = json!([
        {"role": "user", "parts": [{"text": "Weather?"}]},
        {"role": "model", "parts": parts(&streamed)},
        {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "24 C"}}}]},
    ]);
    let last = respond(&gateway, &json!({"contents": contents}));
    assert_eq!((text(&last).as_str(), &last["candidates"][0]["finishReason"]), ("Sunny.", &json!("MAX_TOKENS")));
    assert_eq!(
        service.seen()[2].1["messages"],
        json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "Hm.", "tool_calls": [call]},
            {"role": "tool", "content": "{\"output\":\"24 C\"}", "tool_call_id": "call_1"},
        ])
    );
}

#[test]
fn tokens_are_estimated_without_a_run() {
    let gateway = gateway("tell ran 1; codex_answers ok").start();
    let asked = body("12345678", json!({}));
    for asked in
        [asked.clone(), json!({"generateContentRequest": {"model": "models/m", "contents": asked["contents"]}})]
    {
        let counted = post(&gateway, COUNT, &asked);
        assert_eq!((counted.status, counted.json()), (200, json!({"totalTokens": 2})));
    }
    error(&post(&gateway, "/v1beta/models/unknown:countTokens", &asked), 404, "NOT_FOUND");
    error(&post(&gateway, COUNT, &json!({})), 400, "INVALID_ARGUMENT");
    assert!(!gateway.path("seen/ran").exists(), "nothing ran");
}

#[test]
fn models_are_listed() {
    let gateway = gateway("codex_answers ok").model("up/a:b", json!({"driver": "codex"})).start();
    for path in ["/v1beta/models", "/v1beta/models/?pageSize=50"] {
        let list = gateway.get(path).json();
        let model = |name: &str| gateway.get(&format!("/v1beta/models/{name}")).json();
        for name in ["m", "up/a:b", "up%2Fa%3Ab"] {
            assert!(list["models"].as_array().unwrap().contains(&model(name)), "{name}: {list}");
        }
        assert_eq!((&model("m")["name"], &model("m")["displayName"]), (&json!("models/m"), &json!("m")));
        assert_eq!(model("m")["supportedGenerationMethods"][0], "generateContent");
    }
    error(&gateway.get("/v1beta/models/unknown"), 404, "NOT_FOUND");
    // Google's newer clients use paths that OpenAI's clients use, too.
    let address = gateway.address();
    let get = |path: &str| {
        let head =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nx-goog-api-client: x\r\nconnection: close\r\n\r\n");
        send_raw(address, &head).finish()
    };
    assert_eq!(get("/v1/models").json(), gateway.get("/v1beta/models").json());
    assert_eq!(get("/v1/models/m").json(), gateway.get("/v1beta/models/m").json());
    error(&get("/v1/models/unknown"), 404, "NOT_FOUND");
    assert_eq!(gateway.get("/v1/models").json()["object"], "list");
    let reply = post(&gateway, "/v1beta/models/up/a:b:generateContent", &body("hi", json!({})));
    assert_eq!((reply.status, &reply.json()["modelVersion"]), (200, &json!("up/a:b")), "{reply:?}");
}
