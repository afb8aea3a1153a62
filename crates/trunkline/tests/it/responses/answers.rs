//! Answers: whole, streamed, failed.

use serde_json::{Value, json};

use super::{SLOW, ask, body, gateway, get, grammar, id, path, post, respond, text};
use crate::fake_llm::{FakeLlm, stream, whole};
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

/// Some text, a tool, and the answer.
const TOOL: &str = r#"codex_says 'Let me look.'
printf '{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"ls","status":"in_progress"}}\n'
printf '{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"ls","aggregated_output":"README.md","exit_code":0,"status":"completed"}}\n'
codex_says 'There is one.'; codex_ends"#;

#[test]
fn whole_answer_has_the_receipt_and_can_be_read_again() {
    let gateway = gateway("note \"$@\"; codex_answers 'Hi there.'").start();
    let asked =
        body("hello you", json!({"instructions": "Be brief.", "metadata": {"task": "7"}, "max_output_tokens": 99}));
    let reply = post(&gateway, &asked);
    assert_eq!(reply.status, 200, "{reply:?}");
    let response = reply.json();
    grammar::check_response(&response);
    let run = reply.header("x-trunkline-run").unwrap();
    assert_eq!(id(&response), format!("resp_{}", run.replace('-', "")));
    assert_eq!((&response["status"], text(&response).as_str()), (&json!("completed"), "Hi there."));
    assert_eq!((&response["instructions"], &response["metadata"]), (&json!("Be brief."), &json!({"task": "7"})));
    assert_eq!((&response["max_output_tokens"], &response["usage"]["total_tokens"]), (&json!(99), &json!(5)));
    assert_eq!((&response["trunkline"]["run"], &response["trunkline"]["provider"]), (&json!(run), &json!("codex")));
    assert_eq!(
        (reply.header("x-trunkline-provider"), reply.header("x-trunkline-attempts")),
        (Some("codex"), Some("1"))
    );
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nBe brief.\n\nhello you");
    assert_eq!(get(&gateway, &response), response);
    for same in ["/responses/", "/v1/responses/"] {
        assert_eq!(gateway.get(&format!("{same}{}/", id(&response))).json(), response);
    }
}

#[test]
fn stream_keeps_to_the_grammar_and_is_the_same_when_replayed_from_any_event() {
    let gateway = gateway(TOOL).start();
    for more in [json!({"stream": true}), json!({"stream": true, "trunkline": {"tool_items": true}})] {
        let reply = post(&gateway, &body("what is here?", more.clone()));
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        let live = reply.frames();
        let response = grammar::check(&live);
        let kinds: Vec<&str> =
            response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
        let tool = if more.get("trunkline").is_some() { "trunkline:tool_call" } else { "reasoning" };
        assert_eq!(kinds, ["message", tool, "message"]);
        assert_eq!(text(&response), "Let me look.\n\nThere is one.");
        assert!(!reply.body.contains("[DONE]"));

        assert_eq!(get(&gateway, &response), response);
        assert_eq!(gateway.get(&format!("{}?stream=true", path(&response))).frames(), live);
        for last in [0, 3, live.len() - 2, live.len() - 1, 1000] {
            let rest = gateway.get(&format!("{}?stream=true&starting_after={last}", path(&response)));
            assert_eq!(rest.frames(), live[live.len().min(last + 1)..], "after {last}");
        }
    }
}

#[test]
fn replay_has_the_numbers_of_the_stream_when_text_may_be_a_secret() {
    // The log has the beginning of a possible key together with the text that follows it.
    let gateway = TestGateway::new()
        .cli("claude", r#"cat >/dev/null
delta() { printf '{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}},"session_id":"s"}\n' "$1"; }
printf '{"type":"system","subtype":"init","session_id":"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f","model":"x"}\n'
delta 'This is'; delta ' A'; delta ' g'; delta 'ood s'; delta 'entence, x'; delta '.'
printf '{"type":"result","subtype":"success","is_error":false,"result":"This is A good sentence, x.","session_id":"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f","usage":{"input_tokens":1,"output_tokens":2}}\n'"#)
        .model("m", json!({"driver": "claude"}))
        .start();
    let live = post(&gateway, &body("hi", json!({"stream": true}))).frames();
    let response = grammar::check(&live);
    assert_eq!(text(&response), "This is A good sentence, x.");
    assert_eq!(gateway.get(&format!("{}?stream=true", path(&response))).frames(), live);
}

#[test]
fn failure_is_a_status_before_the_first_event_and_an_event_after_it() {
    let gateway =
        gateway("case $(cat) in *late*) codex_says one ;; esac; echo 'Error: invalid api key' >&2; exit 1").start();
    let reply = post(&gateway, &body("early", json!({"stream": true})));
    let error = reply.error(500);
    assert_eq!((&error["code"], reply.header("x-should-retry")), (&json!("authentication"), Some("false")));
    assert_eq!(post(&gateway, &body("early", json!({}))).error(500)["code"], "authentication");
    let run = reply.header("x-trunkline-run").unwrap().replace('-', "");
    let failed = gateway.get(&format!("/v1/responses/resp_{run}")).json();
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("invalid_prompt")));

    // Codex CLI shows the reason only if it is an event.
    let asked = body("for codex", json!({"stream": true}));
    let live = ask(&gateway, "POST", "/v1/responses", "originator: codex_exec\r\n", Some(&asked)).finish().frames();
    let response = grammar::check(&live);
    assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!("invalid_prompt")));

    let live = post(&gateway, &body("late", json!({"stream": true}))).frames();
    let response = grammar::check(&live);
    assert_eq!((&response["status"], &response["output"][0]["status"]), (&json!("failed"), &json!("incomplete")));
    assert!(response["error"]["message"].as_str().unwrap().starts_with("CLI failed: "), "{response}");
    assert_eq!(get(&gateway, &response), response);
    assert_eq!(gateway.get(&format!("{}?stream=true", path(&response))).frames(), live);
}

#[test]
fn run_is_cancelled_when_client_disconnects() {
    let gateway = gateway(SLOW).start();
    let mut stream = ask(&gateway, "POST", "/v1/responses", "", Some(&body("hi", json!({"stream": true}))));
    stream.read_until("output_text.delta");
    drop(stream);
    until_gone(&[gateway.wait_for_pid("pid")]);
    let run = || gateway.get("/v1/runs").json()["data"][0].take();
    until("the run is cancelled", || run()["state"] == "cancelled");
    let id = run()["id"].as_str().unwrap().replace('-', "");
    let response = gateway.get(&format!("/v1/responses/resp_{id}")).json();
    assert_eq!((&response["status"], text(&response).as_str()), (&json!("cancelled"), "one"));
    let replay = gateway.get(&format!("/v1/responses/resp_{id}?stream=true")).frames();
    assert_eq!(grammar::check(&replay), response);
}

#[test]
fn repeated_request_is_the_same_response_under_an_idempotency_key() {
    let gateway = gateway("counted >/dev/null; codex_answers ok").start();
    for more in [json!({}), json!({"stream": true}), json!({"background": true})] {
        let key = format!("idempotency-key: {}\r\n", more.to_string().len());
        let send = || ask(&gateway, "POST", "/v1/responses", &key, Some(&body("hi", more.clone()))).finish();
        let (first, second) = (send(), send());
        assert_eq!(first.header("x-trunkline-run"), second.header("x-trunkline-run"), "{more}");
        assert_eq!(second.header("idempotent-replayed"), Some("true"));
        assert_eq!(first.body, second.body);
    }
    assert_eq!(gateway.read_note("codex.runs").len(), 3);
}

#[test]
fn tools_and_formats_reach_an_upstream_and_calls_come_back() {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}});
    let first = json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]});
    let piece = |arguments: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]});
    let service = FakeLlm::new([
        whole(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls"),
        stream(&[first, piece("{\"city\":"), piece("\"Rome\"}")], "tool_calls"),
        whole(json!({"role": "assistant", "content": "{\"answer\":\"Sunny.\"}"}), "stop"),
    ]);
    let router =
        format!("providers:\n- name: m\n  type: api\n  config: {{base_url: '{}/', model: gpt-x}}\n", service.url);
    let gateway = TestGateway::new().config("router.yaml", &router).start();
    let tools = json!([
        {"type": "function", "name": "weather", "description": "d", "parameters": {"type": "object"}, "strict": true},
        {"type": "web_search"},
    ]);
    let asked = json!({"tools": tools, "tool_choice": {"type": "function", "name": "weather"}});
    let response = respond(&gateway, &body("Weather?", asked.clone()));
    let expected = json!({"type": "function_call", "status": "completed", "call_id": "call_1", "name": "weather",
        "arguments": "{\"city\":\"Rome\"}", "id": response["output"][0]["id"]});
    assert_eq!(response["output"], json!([expected]));
    assert_eq!((&response["tools"], response["tool_choice"]["name"].as_str()), (&tools, Some("weather")));
    let sent = service.seen()[0].1.clone();
    assert_eq!(
        sent["tools"],
        json!([{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object"}, "strict": true}}])
    );
    assert_eq!(sent["tool_choice"], json!({"type": "function", "function": {"name": "weather"}}));

    let mut streamed = asked;
    streamed["stream"] = json!(true);
    let streamed = grammar::check(&post(&gateway, &body("Weather?", streamed)).frames());
    assert_eq!(streamed["output"][0]["arguments"], "{\"city\":\"Rome\"}");

    // The result of the call, for a model without sessions: the upstream gets everything that was said.
    let format = json!({"type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": true});
    let more = json!({"previous_response_id": id(&response), "text": {"format": format, "verbosity": "low"},
        "reasoning": {"effort": "low"}});
    let result = json!([{"type": "function_call_output", "call_id": "call_1", "output": "24 C"}]);
    let last = respond(&gateway, &body(result, more));
    assert_eq!((text(&last).as_str(), &last["text"]["format"]), ("{\"answer\":\"Sunny.\"}", &format));
    let sent = service.seen()[2].1.clone();
    assert_eq!(
        sent["messages"],
        json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "content": "24 C", "tool_call_id": "call_1"},
        ])
    );
    let schema = json!({"name": "answer", "schema": {"type": "object"}, "strict": true});
    assert_eq!(sent["response_format"], json!({"type": "json_schema", "json_schema": schema}));
    assert_eq!((&sent["reasoning_effort"], &sent["verbosity"]), (&json!("low"), &Value::from("low")));
}
