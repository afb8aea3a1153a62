use std::time::Duration;

use super::*;
use serde_json::{Value, json};
use trunkline_core::event::{Attempted, Finish, Receipt, SessionId, ToolCall, Usage};
use trunkline_core::failure::{Category, Failure};

fn chunks(usage: UsageChunk) -> Chunks {
    let head = Head { id: "cmpl-1".into(), created: 7, model: "m\"x".into(), calls: CallFormat::default() };
    let mut chunks = Chunks::new(head, usage, Arc::new(Secrets::new(["hunter2-hunter2".to_owned()])));
    (chunks.trace.run, chunks.trace.provider) = ("r1".into(), "codex".into());
    chunks
}

fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

fn tool(name: &str, input: Value) -> Event {
    Event::ToolStarted { id: "t".into(), name: name.into(), input }
}

fn finished(content: &str) -> Event {
    let usage = Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 1, estimated: false };
    Event::Finished(Answer::new(content, usage, Finish::Stop))
}

fn attempted(category: Option<Category>) -> Event {
    let duration = Duration::from_millis(5);
    let (provider, model) = ("codex".into(), "m".into());
    let (message, workspace, sandbox) = (None, None, None);
    Event::Attempted(Box::new(Attempted { provider, model, category, message, duration, workspace, sandbox }))
}

/// Payloads of all frames of a stream.
fn play(usage: UsageChunk, events: &[Event]) -> Vec<String> {
    let mut chunks = chunks(usage);
    let mut out = Vec::new();
    let ends: Vec<Stream> = events.iter().map(|event| chunks.push(event, &mut out)).collect();
    let ended = events.iter().position(|event| matches!(event, Event::Finished(_) | Event::Failed(_)));
    assert_eq!(ends.iter().position(|end| *end == Stream::Ended), ended);
    sse::SseDecoder::default().push(&out)
}

/// Texts of all deltas, as (member, text). Frames that are not chunks are skipped.
fn deltas(frames: &[String]) -> Vec<(&'static str, String)> {
    frames
        .iter()
        .filter_map(|frame| serde_json::from_str::<ChatChunk>(frame).ok())
        .flat_map(|chunk| chunk.choices)
        .filter(|choice| choice.delta.role.is_none())
        .flat_map(|choice| {
            let Delta { content, reasoning_content, .. } = choice.delta;
            [("content", content), ("reasoning", reasoning_content)]
        })
        .filter_map(|(member, text)| text.map(|text| (member, text)))
        .collect()
}

#[test]
fn stream_has_no_usage_chunk_by_default() {
    let started = Event::Started { session: Some(SessionId("s".into())), model: None };
    let events = [started, text("Hel"), text("lo \"é\"\n"), attempted(None), finished("Hello \"é\"")];
    let frames = play(UsageChunk::No, &events);
    let chunk = |choices: Value| json!({"id": "cmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m\"x", "choices": choices});
    let step = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null, "logprobs": null}]));
    let mut last = chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": null}]));
    last["trunkline"] = json!({
        "run": "r1", "provider": "codex", "session_id": "s", "workspace": null,
        "attempts": [{"provider": "codex", "model": "m", "outcome": "ok", "category": null, "duration_ms": 5}],
    });
    let expected = [
        step(json!({"role": "assistant", "content": ""})),
        step(json!({"content": "Hel"})),
        step(json!({"content": "lo \"é\"\n"})),
        last,
    ];
    let (done, frames) = frames.split_last().unwrap();
    assert_eq!(done, "[DONE]");
    let frames: Vec<Value> = frames.iter().map(|frame| serde_json::from_str(frame).unwrap()).collect();
    assert_eq!(frames, expected);
}

#[test]
fn stream_ends_with_usage_chunk_when_client_asks_for_it() {
    let frames = play(UsageChunk::Wanted, &[text("a"), finished("a")]);
    let read: Vec<ChatChunk> = frames[..frames.len() - 1].iter().map(|f| serde_json::from_str(f).unwrap()).collect();
    let (last, steps) = read.split_last().unwrap();
    assert!(steps.iter().all(|chunk| chunk.usage == Some(None) && chunk.choices.len() == 1));
    assert!(last.choices.is_empty());
    let usage = last.usage.flatten().unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), (3, 2, 5));
    assert_eq!(steps.iter().filter(|chunk| chunk.choices[0].finish_reason.is_some()).count(), 1);
    // Hand-written frames are identical to serialised ones.
    for (chunk, frame) in read.iter().zip(&frames) {
        assert_eq!(&serde_json::to_string(chunk).unwrap(), frame);
    }
}

#[test]
fn tool_activity_is_streamed_as_reasoning() {
    let failed = Event::ToolFinished { id: "t".into(), output: "no such\nfile".into(), ok: false };
    let fine = Event::ToolFinished { id: "t".into(), output: "fine".into(), ok: true };
    let events = [
        Event::Thinking { delta: "hm".into() },
        tool("bash", json!({"command": "ls"})),
        failed,
        Event::Notice { message: "retrying".into() },
        Event::Unknown { line: "???".into() },
        fine,
        Event::Thinking { delta: "ah".into() },
        text("done"),
        finished("done"),
    ];
    let expected = [
        ("reasoning", "hm"),
        ("reasoning", "\n[tool] bash {\"command\":\"ls\"}\n"),
        ("reasoning", "[tool] failed: no such file\n"),
        ("reasoning", "[notice] retrying\n"),
        ("reasoning", "ah"),
        ("content", "done"),
    ];
    assert_eq!(deltas(&play(UsageChunk::No, &events)), expected.map(|(member, text)| (member, text.to_owned())));
}

#[test]
fn answer_is_sent_at_the_end_when_it_was_never_streamed() {
    let events = [Event::Thinking { delta: "hm".into() }, finished("No output from CLI.")];
    let frames = play(UsageChunk::No, &events);
    assert_eq!(deltas(&frames)[1], ("content", "No output from CLI.".to_owned()));
    assert_eq!(play(UsageChunk::No, &[finished("")]).len(), 3);
}

#[test]
fn answer_follows_the_tools_when_it_comes_only_at_the_end() {
    let content_of = |events: &[Event]| {
        let all = deltas(&play(UsageChunk::No, events));
        all.into_iter().filter(|(member, _)| *member == "content").map(|(_, text)| text).collect::<String>()
    };
    let bash = || tool("bash", json!({}));
    assert_eq!(content_of(&[text("Looking."), bash(), finished("Found.")]), "Looking.\n\nFound.");
    assert_eq!(content_of(&[text("Looking."), bash(), text("Found."), finished("Found.")]), "Looking.Found.");
    assert_eq!(content_of(&[text("Found."), bash(), finished("Found.")]), "Found.");
}

#[test]
fn stream_ends_without_done_when_run_fails() {
    let failure = Failure::new(Category::Quota, "out of credit, key hunter2-hunter2");
    let frames = play(UsageChunk::Wanted, &[text("a"), Event::Failed(failure)]);
    let last: Value = serde_json::from_str(frames.last().unwrap()).unwrap();
    assert_eq!(last["error"]["detail"], json!("out of credit, key ***"));
    assert!(frames.iter().all(|frame| frame != "[DONE]" && !frame.contains("\"finish_reason\":\"")));
}

#[test]
fn tool_activity_is_truncated() {
    let huge = "é".repeat(1_000_000);
    let events = [
        tool("write", json!({"text": huge})),
        Event::ToolFinished { id: "t".into(), output: huge.clone(), ok: false },
        Event::Notice { message: huge },
        finished(""),
    ];
    for (_, text) in deltas(&play(UsageChunk::No, &events)) {
        assert!(text.chars().count() < 230 && text.ends_with("…\n") && !text.contains('\u{fffd}'), "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn streamed_text_is_never_changed(parts in proptest::collection::vec(".{0,30}", 0..20)) {
        let mut events: Vec<Event> = parts.iter().map(|part| text(part)).collect();
        events.push(finished(""));
        let streamed: String = deltas(&play(UsageChunk::Wanted, &events)).into_iter().map(|(_, text)| text).collect();
        assert_eq!(streamed, parts.concat());
    }
}

#[test]
fn error_frame_has_workspace_when_run_fails() {
    let receipt = Receipt { branch: Some("trunkline/r1".into()), files_changed: Some(2), ..Receipt::unchanged() };
    let failed = Event::Failed(Failure::new(Category::Server, "gone"));
    let events = [Event::Workspace(receipt), attempted(Some(Category::Server)), failed];
    let frame: Value = serde_json::from_str(&play(UsageChunk::No, &events)[0]).unwrap();
    assert_eq!(frame["trunkline"]["workspace"]["branch"], json!("trunkline/r1"));
    assert_eq!(frame["trunkline"]["attempts"][0]["outcome"], json!("server"));
}

#[test]
fn tool_call_is_streamed_in_pieces() {
    let piece = |id: Option<&str>, name: Option<&str>, arguments: &str| Event::ToolCall {
        index: 1,
        id: id.map(str::to_owned),
        name: name.map(str::to_owned),
        arguments: arguments.to_owned(),
    };
    let call = ToolCall { id: "call_1".into(), name: "weather".into(), arguments: "{\"city\":1}".into() };
    let answer = Answer { calls: vec![call], ..Answer::new("", Usage::default(), Finish::ToolCalls) };
    let events =
        [piece(Some("call_1"), Some("weather"), ""), piece(None, None, "{\"city\":1}"), Event::Finished(answer)];
    let frames: Vec<Value> = play(UsageChunk::No, &events)
        .iter()
        .filter_map(|frame| serde_json::from_str::<Value>(frame).ok())
        .map(|frame| frame["choices"][0].clone())
        .collect();
    assert_eq!(frames[0]["delta"]["role"], json!("assistant"));
    assert_eq!(
        frames[1]["delta"]["tool_calls"],
        json!([{"index": 1, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}])
    );
    assert_eq!(frames[2]["delta"]["tool_calls"], json!([{"index": 1, "function": {"arguments": "{\"city\":1}"}}]));
    assert_eq!(frames[3]["finish_reason"], json!("tool_calls"));
}

#[test]
fn calls_and_log_probabilities_have_the_format_that_the_client_asked_for() {
    let piece = |index, name: Option<&str>, arguments: &str| Event::ToolCall {
        index,
        id: name.map(|_| format!("call_{index}")),
        name: name.map(str::to_owned),
        arguments: arguments.into(),
    };
    let call = ToolCall { id: "call_0".into(), name: "f".into(), arguments: "{}".into() };
    let logprobs = r#"{"content":[{"token":"a","logprob":-1}],"refusal":null}"#;
    let answer = Answer {
        calls: vec![call],
        logprobs: Some(logprobs.into()),
        ..Answer::new("", Usage::default(), Finish::ToolCalls)
    };
    let head = Head { id: "cmpl-1".into(), created: 7, model: "m".into(), calls: CallFormat::FunctionCall };
    let (mut chunks, mut out) = (Chunks::new(head.clone(), UsageChunk::No, Arc::default()), Vec::new());
    for event in
        [piece(0, Some("f"), ""), piece(0, None, "{}"), piece(1, Some("g"), "{}"), Event::Finished(answer.clone())]
    {
        chunks.push(&event, &mut out);
    }
    let frames: Vec<Value> = sse::SseDecoder::default()
        .push(&out)
        .iter()
        .filter(|frame| *frame != "[DONE]")
        .map(|frame| serde_json::from_str(frame).unwrap())
        .collect();
    let deltas: Vec<&Value> = frames.iter().map(|frame| &frame["choices"][0]["delta"]).collect();
    assert_eq!(
        deltas[1..3],
        [&json!({"function_call": {"name": "f", "arguments": ""}}), &json!({"function_call": {"arguments": "{}"}}),]
    );
    let last = &frames[3]["choices"][0];
    assert_eq!((frames.len(), &last["finish_reason"]), (4, &json!("function_call")));
    assert_eq!(last["logprobs"], serde_json::from_str::<Value>(logprobs).unwrap());

    let whole = serde_json::to_value(crate::response::whole(head, &Trace::default(), answer)).unwrap();
    let choice = &whole["choices"][0];
    assert_eq!(choice["message"]["function_call"], json!({"name": "f", "arguments": "{}"}));
    assert_eq!((&choice["message"].get("tool_calls"), &choice["finish_reason"]), (&None, &json!("function_call")));
    assert_eq!(choice["logprobs"], last["logprobs"]);
}

#[test]
fn alternatives_are_choices_of_their_own_whole_and_streamed() {
    let call = ToolCall { id: "c".into(), name: "f".into(), arguments: "{}".into() };
    let logprobs = r#"{"content":[],"refusal":null}"#;
    let alternatives = vec![
        Alternative { content: "b".into(), finish: Finish::Length, calls: vec![], logprobs: Some(logprobs.into()) },
        Alternative { content: String::new(), finish: Finish::ToolCalls, calls: vec![call], logprobs: None },
    ];
    let answer = Answer { alternatives, ..Answer::new("a", Usage::default(), Finish::Stop) };
    let head = Head { id: "cmpl-1".into(), created: 7, model: "m".into(), calls: CallFormat::ToolCalls };
    let (mut chunks, mut out) = (Chunks::new(head.clone(), UsageChunk::Wanted, Arc::default()), Vec::new());
    for event in [Event::Text { delta: "a".into() }, Event::Finished(answer.clone())] {
        chunks.push(&event, &mut out);
    }
    let frames = sse::SseDecoder::default().push(&out);
    let frames: Vec<Value> = frames.iter().filter_map(|frame| serde_json::from_str(frame).ok()).collect();
    let step = |index: u32, delta: Value, finish: Value, logprobs: Value| json!([{"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}]);
    let role = || json!({"role": "assistant", "content": ""});
    let (open, none) = (Value::Null, Value::Null);
    let tool = json!({"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let expected = [
        step(0, role(), open.clone(), none.clone()),
        step(0, json!({"content": "a"}), open.clone(), none.clone()),
        step(1, role(), open.clone(), none.clone()),
        step(1, json!({"content": "b"}), open.clone(), none.clone()),
        step(1, json!({}), json!("length"), json!({"content": [], "refusal": null})),
        step(2, role(), open.clone(), none.clone()),
        step(2, json!({"tool_calls": [tool]}), open, none.clone()),
        step(2, json!({}), json!("tool_calls"), none.clone()),
        step(0, json!({}), json!("stop"), none),
        json!([]),
    ];
    let choices: Vec<&Value> = frames.iter().map(|frame| &frame["choices"]).collect();
    assert_eq!(choices, expected.iter().collect::<Vec<_>>());
    assert!(frames[..9].iter().all(|frame| frame["usage"].is_null() && frame.get("usage").is_some()), "{frames:?}");

    let whole = serde_json::to_value(crate::response::whole(head, &Trace::default(), answer)).unwrap();
    let summary: Vec<(&Value, &Value, &Value)> = whole["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| (&choice["index"], &choice["message"]["content"], &choice["finish_reason"]))
        .collect();
    let expected = [
        (&json!(0), &json!("a"), &json!("stop")),
        (&json!(1), &json!("b"), &json!("length")),
        (&json!(2), &Value::Null, &json!("tool_calls")),
    ];
    assert_eq!(summary, expected);
}
