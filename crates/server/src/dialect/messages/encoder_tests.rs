use proptest::prelude::*;
use serde_json::{Value, json};
use trunkline_core::event::ToolCall;
use trunkline_core::failure::{Category, Failure};

use super::super::test_grammar;
use super::*;
use crate::dialect::test_events::{RUN, call_piece, finished, run, text, thinking, tool};

fn encoder(reasoning: Reasoning, form: Form) -> MessageEncoder {
    let secrets = Secrets::new(["hunter2-hunter2".to_owned()]);
    MessageEncoder::new(&RunHead::new(RUN), "m".to_owned(), reasoning, form, Arc::new(secrets))
}

/// The frames of a stream of these events.
fn stream(reasoning: Reasoning, events: &[Event]) -> Vec<Value> {
    let (mut encoder, mut out) = (encoder(reasoning, Form::Frames), Vec::new());
    let mut ended = Stream::Open;
    for event in events {
        assert_eq!(ended, Stream::Open);
        ended = encoder.push(event, &mut out);
    }
    assert_eq!(ended, Stream::Ended);
    parse(&out)
}

fn parse(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.split_terminator("\n\n")
        .map(|frame| {
            let (name, data) = frame.split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
            data
        })
        .collect()
}

fn whole(reasoning: Reasoning, events: &[Event]) -> Value {
    let (mut encoder, mut trace) = (encoder(reasoning, Form::List), Trace::default());
    for event in events {
        trace.observe(event);
        encoder.observe(event);
    }
    let Some(Event::Finished(answer)) = events.last() else { panic!("not finished") };
    serde_json::from_slice(&encoder.finish(&trace, answer.clone())).unwrap()
}

fn kinds(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

#[test]
fn text_is_streamed_in_the_order_that_clients_expect() {
    let frames = stream(Reasoning::Hidden, &[text("he"), text("llo"), finished("hello")]);
    assert_eq!(
        kinds(&frames),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    let message = test_grammar::check(&frames);
    assert_eq!(message["id"], "msg_01a1e9c42a4976a6bf909dbc3a2f6e01");
    assert_eq!(message["content"], json!([{"type": "text", "text": "hello"}]));
    assert_eq!(message["stop_reason"], "end_turn");
    let usage = json!({"input_tokens": 2, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 1,
        "output_tokens": 2});
    assert_eq!(message["usage"], usage);
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "he"}});
    assert_eq!(frames[2], delta);
}

#[test]
fn reasoning_is_shown_only_if_the_client_asked_for_it() {
    let events = [thinking("hm"), tool(), text("Yes."), finished("Yes.")];
    let reasoning = "hm\n[tool] bash {\"command\":\"ls\"}\n";
    let shown = json!([
        {"type": "thinking", "thinking": reasoning, "signature": ""}, {"type": "text", "text": "Yes."},
    ]);
    assert_eq!(test_grammar::check(&stream(Reasoning::Shown, &events))["content"], shown);
    let frames = stream(Reasoning::Hidden, &events);
    assert_eq!(test_grammar::check(&frames)["content"], json!([{"type": "text", "text": "Yes."}]));
}

#[test]
fn calls_are_blocks_whether_streamed_or_whole() {
    let call = ToolCall { id: "call_1".into(), name: "weather".into(), arguments: "{\"city\":\"Rome\"}".into() };
    let answer = Answer { calls: vec![call], ..Answer::new("", Usage::default(), Finish::ToolCalls) };
    let pieces = [
        call_piece(Some("call_1"), ""),
        call_piece(None, "{\"city\":"),
        call_piece(None, "\"Rome\"}"),
        Event::Finished(answer.clone()),
    ];
    let streamed = test_grammar::check(&stream(Reasoning::Hidden, &pieces));
    let late = [Event::Finished(answer)];
    let expected = json!([{"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}}]);
    assert_eq!((&streamed["content"], &streamed["stop_reason"]), (&expected, &json!("tool_use")));
    assert_eq!(whole(Reasoning::Hidden, &late)["content"], expected);
    assert_eq!(test_grammar::check(&stream(Reasoning::Hidden, &late))["content"], expected);
}

#[test]
fn failure_ends_the_stream_with_an_error() {
    let failure = Failure::new(Category::RateLimit, "429 for hunter2-hunter2");
    let error = test_grammar::check(&stream(Reasoning::Hidden, &[text("one"), Event::Failed(failure)]));
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("rate_limit_error")));
    assert_eq!(error["error"]["message"], "CLI failed: 429 for ***");
}

#[test]
fn silent_stream_begins_with_the_message_and_pings() {
    let (mut encoder, mut out) = (encoder(Reasoning::Hidden, Form::Frames), Vec::new());
    encoder.open(&mut out);
    encoder.keep_alive(Some("running Bash for 42 s"), &mut out);
    encoder.push(&finished("late"), &mut out);
    let frames = parse(&out);
    assert_eq!(kinds(&frames)[..3], ["message_start", "ping", "content_block_start"]);
    assert_eq!(test_grammar::check(&frames)["content"][0]["text"], "late");
}

proptest! {
    /// For any run the stream keeps to the grammar, and the whole answer is its sum.
    #[test]
    fn stream_and_whole_agree(events in run(), shown in any::<bool>()) {
        let reasoning = if shown { Reasoning::Shown } else { Reasoning::Hidden };
        let sum = test_grammar::check(&stream(reasoning, &events));
        if let Some(Event::Finished(_)) = events.last() {
            let whole = whole(reasoning, &events);
            test_grammar::check_message(&whole);
            prop_assert_eq!(whole, sum);
        } else {
            prop_assert_eq!(&sum["type"], "error");
        }
    }
}
