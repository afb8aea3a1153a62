use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use trunkline_core::event::{Attempted, Usage};
use trunkline_core::failure::{Category, Failure};

fn encoder(shape: Shape, thinking: Thinking) -> LineEncoder {
    LineEncoder::new(0, "m", shape, thinking, Arc::default())
}

/// The lines of a stream.
fn streamed(shape: Shape, thinking: Thinking, events: &[Event]) -> Vec<Value> {
    let (mut encoder, mut out) = (encoder(shape, thinking), Vec::new());
    let mut stream = Stream::Open;
    for event in events {
        assert_eq!(stream, Stream::Open);
        stream = encoder.push(event, &mut out);
    }
    assert_eq!(stream, Stream::Ended);
    let text = String::from_utf8(out).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn whole(shape: Shape, thinking: Thinking, events: &[Event]) -> Value {
    let (mut encoder, mut trace) = (encoder(shape, thinking), Trace::default());
    for event in events {
        trace.observe(event);
        encoder.observe(event);
    }
    let Some(Event::Finished(answer)) = events.last() else { panic!("{events:?}") };
    serde_json::from_slice(&encoder.finish(&trace, answer.clone())).unwrap()
}

fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

fn thinking(delta: &str) -> Event {
    Event::Thinking { delta: delta.into() }
}

fn attempted(milliseconds: u64) -> Event {
    Event::Attempted(Box::new(Attempted {
        provider: "p".into(),
        model: "m".into(),
        category: None,
        message: None,
        duration: Duration::from_millis(milliseconds),
        workspace: None,
        sandbox: None,
    }))
}

fn finished(content: &str, calls: Vec<ToolCall>) -> Event {
    let usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
    Event::Finished(Answer { calls, ..Answer::new(content, usage, Finish::Stop) })
}

fn call(arguments: &str) -> ToolCall {
    ToolCall { id: "call_1".into(), name: "f".into(), arguments: arguments.into() }
}

#[test]
fn lines_have_the_members_of_their_route() {
    let events = [thinking("hm"), text("Hel"), text("lo"), attempted(1), attempted(2), finished("Hello", vec![])];
    let lines = streamed(Shape::Chat, Thinking::Shown, &events);
    let message =
        |message: Value| json!({"model": "m", "created_at": "1970-01-01T00:00:00Z", "message": message, "done": false});
    assert_eq!(
        lines[..3],
        [
            message(json!({"role": "assistant", "content": "", "thinking": "hm"})),
            message(json!({"role": "assistant", "content": "Hel"})),
            message(json!({"role": "assistant", "content": "lo"})),
        ]
    );
    let mut last = lines[3].clone();
    assert_eq!(last["trunkline"].take()["attempts"].as_array().unwrap().len(), 2);
    let end = json!({"done": true, "done_reason": "stop", "total_duration": 3_000_000, "load_duration": 1_000_000,
        "prompt_eval_count": 3, "prompt_eval_duration": 0, "eval_count": 2, "eval_duration": 2_000_000,
        "model": "m", "created_at": "1970-01-01T00:00:00Z", "message": {"role": "assistant", "content": ""},
        "trunkline": null});
    assert_eq!(last, end);
    let lines = streamed(Shape::Generate, Thinking::Hidden, &events);
    assert_eq!(lines[0], json!({"model": "m", "created_at": "1970-01-01T00:00:00Z", "response": "Hel", "done": false}));
    assert_eq!((lines.len(), &lines[2]["response"], &lines[2]["done"]), (3, &json!(""), &json!(true)));
}

#[test]
fn calls_have_objects_as_arguments_whatever_the_model_wrote() {
    for (arguments, object) in [
        (r#"{"a": 1}"#, json!({"a": 1})),
        ("{\r\n  \"a\": \"b\\nc\"\n}\n", json!({"a": "b\nc"})),
        ("", json!({})),
        (" \n", json!({})),
        ("[1]", json!({"input": "[1]"})),
        ("{\"a\":", json!({"input": "{\"a\":"})),
    ] {
        let piece = Event::ToolCall {
            index: 0,
            id: Some("call_1".into()),
            name: Some("f".into()),
            arguments: arguments.into(),
        };
        let events = [piece, finished("", vec![call(arguments)])];
        let expected = json!([{"id": "call_1", "function": {"index": 0, "name": "f", "arguments": object}}]);
        let lines = streamed(Shape::Chat, Thinking::Shown, &events);
        assert_eq!((lines.len(), &lines[0]["message"]["tool_calls"]), (2, &expected), "{arguments}");
        assert_eq!(whole(Shape::Chat, Thinking::Shown, &events)["message"]["tool_calls"], expected);
    }
}

#[test]
fn failed_stream_ends_with_an_error_and_silence_is_a_line_without_text() {
    let failure = Failure::new(Category::Server, "it broke");
    let lines = streamed(Shape::Chat, Thinking::Shown, &[text("Hel"), Event::Failed(failure)]);
    assert_eq!(lines.last().unwrap(), &json!({"error": "CLI failed: it broke"}));
    for (shape, member) in [(Shape::Chat, "/message/content"), (Shape::Generate, "/response")] {
        let mut out = Vec::new();
        encoder(shape, Thinking::Shown).keep_alive(Some("running"), &mut out);
        let line: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((line.pointer(member), &line["done"]), (Some(&json!("")), &json!(false)));
    }
}

#[test]
fn log_probabilities_are_in_the_last_line() {
    let mut end = finished("a", vec![]);
    if let Event::Finished(answer) = &mut end {
        answer.logprobs = Some(r#"{"content":[{"token":"a","logprob":-1}],"refusal":null}"#.to_owned());
    }
    let expected = json!([{"token": "a", "logprob": -1}]);
    let events = [text("a"), end];
    assert_eq!(streamed(Shape::Chat, Thinking::Shown, &events)[1]["logprobs"], expected);
    assert_eq!(whole(Shape::Generate, Thinking::Shown, &events)["logprobs"], expected);
}

/// One step of a run, without its end.
fn step() -> impl Strategy<Value = Event> {
    prop_oneof![
        "\\PC{0,12}".prop_map(|delta| Event::Text { delta }),
        "[a-z\n\"]{0,6}".prop_map(|delta| Event::Thinking { delta }),
        "\\PC{0,9}".prop_map(|message| Event::Notice { message }),
        "[a-z]{1,3}".prop_map(|name| Event::ToolStarted { id: "t".into(), name, input: json!({"a": 1}) }),
        any::<bool>().prop_map(|ok| Event::ToolFinished { id: "t".into(), output: "o".into(), ok }),
        Just(Event::Unknown { line: "?".into() }),
        Just(attempted(5)),
    ]
}

/// The texts since the last tool, which are the answer.
fn said(events: &[Event]) -> String {
    let last_tool = events.iter().rposition(|event| matches!(event, Event::ToolStarted { .. }));
    let texts = events[last_tool.unwrap_or(0)..].iter();
    texts.filter_map(|event| if let Event::Text { delta } = event { Some(delta.as_str()) } else { None }).collect()
}

proptest! {
    /// Text before a tool is only streamed: a whole answer is the final message alone.
    #[test]
    fn whole_answer_is_the_sum_of_the_stream(
        mut events in prop::collection::vec(step(), 0..12),
        calls in prop::collection::vec("\\PC{0,9}", 0..3),
        shape in prop_oneof![Just(Shape::Chat), Just(Shape::Generate)],
        shown in prop_oneof![Just(Thinking::Shown), Just(Thinking::Hidden)],
    ) {
        let has_tools = events.iter().any(|event| matches!(event, Event::ToolStarted { .. }));
        let calls: Vec<ToolCall> = calls.iter().map(|arguments| call(arguments)).collect();
        events.push(finished(&said(&events), calls));
        let (lines, whole) = (streamed(shape, shown, &events), whole(shape, shown, &events));
        let (content, reasoning) = match shape {
            Shape::Chat => ("/message/content", "/message/thinking"),
            Shape::Generate => ("/response", "/thinking"),
        };
        let sum = |pointer: &str| -> String {
            lines.iter().filter_map(|line| line.pointer(pointer)?.as_str()).collect()
        };
        let of_whole = |pointer: &str| whole.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        prop_assert!(sum(content).ends_with(&of_whole(content)), "{} {}", sum(content), whole);
        prop_assert!(has_tools || sum(content) == of_whole(content), "{} {}", sum(content), whole);
        prop_assert_eq!(sum(reasoning), of_whole(reasoning));
        let calls: Vec<Value> = lines.iter().filter_map(|line| line.pointer("/message/tool_calls").cloned()).collect();
        prop_assert_eq!(calls.first(), whole.pointer("/message/tool_calls"));
        let mut last = lines.last().unwrap().clone();
        for member in ["message", "response", "thinking"] {
            last.as_object_mut().unwrap().remove(member);
        }
        for (name, value) in last.as_object().unwrap() {
            prop_assert_eq!(value, &whole[name], "{}", name);
        }
    }
}
