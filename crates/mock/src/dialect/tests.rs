use proptest::prelude::*;

use super::exchange::*;
use super::*;
use crate::tools::{CallArguments, MockCall, OfferedTool, ToolInput};

fn reply() -> MockReply {
    MockReply {
        id: 7,
        created: 1_700_000_000,
        model: "m".to_owned(),
        text: Some("On it.".to_owned()),
        calls: vec![MockCall {
            id: "call_001".to_owned(),
            name: "bash".to_owned(),
            arguments: CallArguments::Json(r#"{"command":"ls"}"#.to_owned()),
        }],
        input_tokens: 10,
        output_tokens: 4,
        include_usage: true,
    }
}

fn plain() -> MockReply {
    MockReply { calls: Vec::new(), ..reply() }
}

/// Returns the event names and payloads of a stream.
fn payloads(frames: &[Vec<u8>]) -> Vec<(Option<String>, Value)> {
    frames
        .iter()
        .map(|frame| {
            let text = std::str::from_utf8(frame).unwrap();
            let (name, data) = match text.strip_prefix("event: ") {
                Some(named) => named.split_once('\n').map(|(name, data)| (Some(name.to_owned()), data)).unwrap(),
                None => (None, text),
            };
            let data = data.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
            (name, serde_json::from_str(data).unwrap_or_else(|_| json!(data)))
        })
        .collect()
}

#[test]
fn requests_are_parsed_in_every_dialect() {
    let chat = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "run it"}, {"type": "image_url", "image_url": {}}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "OK"},
        ],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"x": 1}}}],
    });
    let responses = json!({
        "model": "m", "stream": true, "instructions": "be brief",
        "input": [
            {"role": "user", "content": "earlier"},
            {"type": "function_call_output", "call_id": "c0", "output": "earlier"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "run it"}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "OK"},
        ],
        "tools": [{"type": "function", "name": "bash", "parameters": {"x": 1}}],
    });
    let anthropic = json!({
        "model": "m", "stream": true, "system": [{"type": "text", "text": "be brief"}],
        "messages": [
            {"role": "user", "content": "run it"},
            {"role": "assistant", "content": [{"type": "text", "text": "ok"}, {"type": "tool_use", "id": "c1"}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "OK"}]},
                {"type": "text", "text": "mind the gap"},
            ]},
        ],
        "tools": [{"name": "bash", "input_schema": {"x": 1}}],
    });
    let gemini = json!({
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "run it"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "bash", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "bash", "response": {"output": "OK"}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "bash", "parametersJsonSchema": {"x": 1}}]}],
    });
    for (dialect, body) in [
        (ApiDialect::Chat, chat),
        (ApiDialect::Responses, responses),
        (ApiDialect::Anthropic, anthropic),
        (ApiDialect::Gemini, gemini),
    ] {
        let request = dialect.parse(&body).unwrap();
        assert_eq!(request.history.user_message(), "run it", "{dialect:?}");
        assert_eq!(request.history.result_count(), 1, "{dialect:?}");
        assert_eq!(request.history.call_count("c1"), 1, "{dialect:?}");
        assert_eq!(request.tools, [OfferedTool { name: "bash".to_owned(), input: ToolInput::Object(json!({"x": 1})) }]);
        // Gemini has both in the path.
        let in_body = dialect != ApiDialect::Gemini;
        assert_eq!((request.model.as_deref(), request.stream), (in_body.then_some("m"), in_body), "{dialect:?}");
        assert!(request.include_usage);
    }
}

#[test]
fn parsing_fails_when_messages_are_missing() {
    for (dialect, name) in [
        (ApiDialect::Chat, "messages"),
        (ApiDialect::Responses, "input"),
        (ApiDialect::Anthropic, "messages"),
        (ApiDialect::Gemini, "contents"),
    ] {
        assert_eq!(dialect.parse(&json!([])).unwrap_err(), "the body is not a JSON object");
        assert!(dialect.parse(&json!({name: 5})).unwrap_err().contains(name));
        assert_eq!(dialect.parse(&json!({name: []})).unwrap().history.user_message(), "");
    }
    assert_eq!(ApiDialect::Responses.parse(&json!({"input": "hi"})).unwrap().history.user_message(), "hi");
}

#[test]
fn chat_whole() {
    assert_eq!(
        ApiDialect::Chat.whole(&reply()),
        json!({
            "id": "mock-7", "object": "chat.completion", "created": 1_700_000_000, "model": "mock-model",
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": "On it.", "tool_calls": [
                    {"id": "call_001", "type": "function", "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}},
                ]},
                "logprobs": null,
                "finish_reason": "tool_calls",
            }],
            "usage": {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 0}},
        })
    );
    let plain = ApiDialect::Chat.whole(&plain());
    assert_eq!(plain["choices"][0]["message"], json!({"role": "assistant", "content": "On it."}));
    assert_eq!(plain["choices"][0]["finish_reason"], "stop");
}

#[test]
fn chat_streamed() {
    let frames = ApiDialect::Chat.events(&reply());
    let sent = payloads(&frames);
    let (_, done) = sent.last().unwrap();
    assert_eq!(done, "[DONE]");
    let chunks: Vec<&Value> = sent[..sent.len() - 1].iter().map(|(_, chunk)| chunk).collect();
    for chunk in &chunks {
        assert_eq!(
            (&chunk["id"], &chunk["object"], &chunk["created"], &chunk["model"]),
            (&json!("mock-7"), &json!("chat.completion.chunk"), &json!(1_700_000_000), &json!("mock-model"))
        );
    }
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    assert_eq!(
        deltas,
        [
            &json!({"role": "assistant", "content": ""}),
            &json!({"content": "On "}),
            &json!({"content": "it."}),
            &json!({"tool_calls": [{"index": 0, "id": "call_001", "type": "function", "function": {"name": "bash", "arguments": ""}}]}),
            &json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"comman"}}]}),
            &json!({"tool_calls": [{"index": 0, "function": {"arguments": "d\":\"ls\"}"}}]}),
            &json!({}),
            &json!(null),
        ]
    );
    let ends: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["finish_reason"]).collect();
    assert_eq!(ends.iter().filter(|end| !end.is_null()).count(), 1);
    assert_eq!(ends[6], "tool_calls");
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["total_tokens"], 14);
    assert!(chunks[..7].iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)));

    let without_usage = payloads(&ApiDialect::Chat.events(&MockReply { include_usage: false, ..reply() }));
    assert!(without_usage.iter().all(|(_, chunk)| chunk.get("usage").is_none() && chunk["choices"] != json!([])));
}

#[test]
fn our_own_upstream_reader_parses_the_chat_stream() {
    use trunkline_core::event::{Event, Finish};
    let mut reader = trunkline_wire::upstream::UpstreamReader::new(&[]);
    let mut events: Vec<Event> =
        ApiDialect::Chat.events(&reply()).iter().flat_map(|frame| reader.push(frame)).collect();
    assert!(reader.ended());
    events.extend(reader.conclude("prompt"));
    let Some(Event::Finished(answer)) = events.last() else { panic!("{events:?}") };
    assert_eq!((answer.content.as_str(), answer.finish), ("On it.", Finish::ToolCalls));
    assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.estimated), (10, 4, false));
    let [call] = answer.calls.as_slice() else { panic!("{answer:?}") };
    assert_eq!(
        (call.id.as_str(), call.name.as_str(), call.arguments.as_str()),
        ("call_001", "bash", r#"{"command":"ls"}"#)
    );
}

#[test]
fn anthropic_whole_and_streamed() {
    let usage = |output| json!({"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": output});
    assert_eq!(
        ApiDialect::Anthropic.whole(&reply()),
        json!({
            "id": "msg_mock7", "type": "message", "role": "assistant", "model": "m",
            "content": [
                {"type": "text", "text": "On it."},
                {"type": "tool_use", "id": "call_001", "name": "bash", "input": {"command": "ls"}},
            ],
            "stop_reason": "tool_use", "stop_sequence": null, "usage": usage(4),
        })
    );
    assert_eq!(ApiDialect::Anthropic.whole(&plain())["stop_reason"], "end_turn");
    let sent = payloads(&ApiDialect::Anthropic.events(&reply()));
    assert!(sent.iter().all(|(name, event)| name.as_deref() == event["type"].as_str()));
    let events: Vec<Value> = sent.into_iter().map(|(_, event)| event).collect();
    assert_eq!(
        events,
        [
            json!({"type": "message_start", "message": {
                "id": "msg_mock7", "type": "message", "role": "assistant", "model": "m", "content": [],
                "stop_reason": null, "stop_sequence": null, "usage": usage(1),
            }}),
            json!({"type": "ping"}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "On "}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "it."}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "call_001", "name": "bash", "input": {}}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"comman"}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "d\":\"ls\"}"}}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 4}}),
            json!({"type": "message_stop"}),
        ]
    );
}

#[test]
fn gemini_whole_and_streamed() {
    let chunk = |parts: Value, end: bool| {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        if end {
            candidate["finishReason"] = json!("STOP");
        }
        json!({
            "candidates": [candidate],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 4, "totalTokenCount": 14},
            "modelVersion": "m",
            "responseId": "mock7",
        })
    };
    let call = json!({"functionCall": {"id": "call_001", "name": "bash", "args": {"command": "ls"}}});
    assert_eq!(ApiDialect::Gemini.whole(&reply()), chunk(json!([{"text": "On it."}, call]), true));
    let expected = vec![
        chunk(json!([{"text": "On "}]), false),
        chunk(json!([{"text": "it."}]), false),
        chunk(json!([call]), true),
    ];
    let sent: Vec<Value> = payloads(&ApiDialect::Gemini.events(&reply())).into_iter().map(|(_, chunk)| chunk).collect();
    assert_eq!(sent, expected);
    let array: Value = serde_json::from_slice(&ApiDialect::Gemini.array(&reply()).concat()).unwrap();
    assert_eq!(array, json!(expected));
}

#[test]
fn responses_whole_and_streamed() {
    let message = |status: &str, content: Value| json!({"type": "message", "id": "msg_mock7", "status": status, "role": "assistant", "content": content});
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    let call = |status: &str, arguments: &str| json!({"type": "function_call", "id": "fc_mock7_0", "status": status, "call_id": "call_001", "name": "bash", "arguments": arguments});
    let arguments = r#"{"command":"ls"}"#;
    let whole = ApiDialect::Responses.whole(&reply());
    assert_eq!(whole["output"], json!([message("completed", json!([part("On it.")])), call("completed", arguments)]));
    assert_eq!(
        (&whole["object"], &whole["status"], &whole["id"]),
        (&json!("response"), &json!("completed"), &json!("resp_mock7"))
    );
    assert_eq!(
        whole["usage"],
        json!({
            "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 14,
        })
    );

    let sent = payloads(&ApiDialect::Responses.events(&reply()));
    let mut kinds = Vec::new();
    for (number, (name, event)) in sent.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
        assert_eq!(name.as_deref(), event["type"].as_str());
        kinds.push(event["type"].as_str().unwrap());
    }
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let event = |number: usize| &sent[number].1;
    assert_eq!(
        (&event(0)["response"]["status"], &event(0)["response"]["usage"]),
        (&json!("in_progress"), &Value::Null)
    );
    assert_eq!(event(2)["item"], message("in_progress", json!([])));
    assert_eq!(
        event(4),
        &json!({
            "type": "response.output_text.delta", "sequence_number": 4, "item_id": "msg_mock7", "output_index": 0,
            "content_index": 0, "delta": "On ", "logprobs": [],
        })
    );
    assert_eq!(event(6)["text"], "On it.");
    assert_eq!(event(9)["item"], call("in_progress", ""));
    assert_eq!((&event(10)["delta"], &event(11)["delta"]), (&json!("{\"comman"), &json!("d\":\"ls\"}")));
    assert_eq!((&event(12)["arguments"], &event(12)["name"]), (&json!(arguments), &json!("bash")));
    assert_eq!(event(13)["item"], call("completed", arguments));
    assert_eq!(event(14)["response"], whole);
}

#[test]
fn freeform_calls_are_custom_tool_calls_in_responses() {
    let call = MockCall {
        id: "c".to_owned(),
        name: "apply_patch".to_owned(),
        arguments: CallArguments::Freeform("*** Begin Patch".to_owned()),
    };
    let reply = MockReply { text: None, calls: vec![call], ..reply() };
    let item = json!({
        "type": "custom_tool_call", "id": "fc_mock7_0", "status": "completed", "call_id": "c", "name": "apply_patch",
        "input": "*** Begin Patch",
    });
    assert_eq!(ApiDialect::Responses.whole(&reply)["output"], json!([item]));
    let sent = payloads(&ApiDialect::Responses.events(&reply));
    let kinds: Vec<&str> = sent.iter().filter_map(|(name, _)| name.as_deref()).collect();
    assert_eq!(
        kinds[3..6],
        ["response.custom_tool_call_input.delta"; 2]
            .into_iter()
            .chain(["response.custom_tool_call_input.done"])
            .collect::<Vec<_>>()
    );
}

#[test]
fn errors_have_the_format_of_each_vendor() {
    let usual = |status| ScriptedError { message: None, ..ScriptedError::new(status, "") };
    let named =
        ScriptedError { kind: Some("insufficient_quota".to_owned()), ..ScriptedError::new(429, "no credit left") };
    for (dialect, error, expected) in [
        (
            ApiDialect::Chat,
            usual(401),
            json!({"error": {"message": "invalid API key", "type": "invalid_request_error", "param": null, "code": "invalid_api_key"}}),
        ),
        (
            ApiDialect::Chat,
            named.clone(),
            json!({"error": {"message": "no credit left", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}}),
        ),
        (
            ApiDialect::Responses,
            usual(500),
            json!({"error": {"message": "internal server error", "type": "server_error", "param": null, "code": null}}),
        ),
        (
            ApiDialect::Anthropic,
            usual(529),
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}),
        ),
        (
            ApiDialect::Gemini,
            usual(429),
            json!({"error": {"code": 429, "message": "rate limit reached", "status": "RESOURCE_EXHAUSTED"}}),
        ),
        (
            ApiDialect::Gemini,
            usual(418),
            json!({"error": {"code": 418, "message": "bad request", "status": "INVALID_ARGUMENT"}}),
        ),
    ] {
        assert_eq!(dialect.error(&error), expected, "{dialect:?}");
    }
}

/// Generates JSON of any shape, often with names that the dialects use.
fn any_json() -> impl Strategy<Value = Value> {
    const NAMES: [&str; 16] = [
        "messages",
        "input",
        "contents",
        "parts",
        "role",
        "content",
        "type",
        "text",
        "tools",
        "function",
        "tool_calls",
        "functionResponse",
        "system",
        "id",
        "properties",
        "functionDeclarations",
    ];
    const VALUES: [&str; 8] =
        ["user", "assistant", "tool", "tool_result", "function_call_output", "message", "bash", "<cwd>/"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        prop::sample::select(&VALUES[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(&NAMES[..]), inner), 0..6)
                .prop_map(|pairs| pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn any_body_is_parsed_or_rejected_without_panic(body in any_json(), arguments in "\\PC{0,40}") {
        for dialect in [ApiDialect::Chat, ApiDialect::Responses, ApiDialect::Anthropic, ApiDialect::Gemini] {
            let Ok(request) = dialect.parse(&body) else { continue };
            let (name, arguments) = crate::tools::translate("bash", &arguments, &request.tools, request.history.folder());
            let call = MockCall { id: "c".to_owned(), name, arguments };
            let reply = MockReply { calls: vec![call], text: Some(request.history.user_message()), ..reply() };
            prop_assert!(dialect.whole(&reply).is_object());
            prop_assert!(!dialect.events(&reply).is_empty());
        }
    }

    #[test]
    fn pieces_of_a_stream_join_to_the_whole(text in "\\PC{0,60}", arguments in "\\PC{0,40}") {
        let call = MockCall { arguments: CallArguments::Json(arguments.clone()), ..reply().calls.remove(0) };
        let reply = MockReply { text: Some(text.clone()), calls: vec![call], ..reply() };
        let sent = payloads(&ApiDialect::Chat.events(&reply));
        let joined = |pointer: &str| sent.iter().filter_map(|(_, chunk)| chunk.pointer(pointer)?.as_str()).collect::<String>();
        prop_assert_eq!(joined("/choices/0/delta/content"), text);
        prop_assert_eq!(joined("/choices/0/delta/tool_calls/0/function/arguments"), arguments);
    }
}

#[test]
fn tools_are_found_among_the_input_items() {
    let body = json!({"model": "m", "input": [
        {"type": "additional_tools", "role": "developer", "tools": [
            {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}, {"type": "function", "name": "wait"}]},
        ]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ]});
    let request = responses::parse(&body).unwrap();
    let names: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!((names, &request.tools[0].input), (vec!["exec", "wait"], &ToolInput::Text));
}
