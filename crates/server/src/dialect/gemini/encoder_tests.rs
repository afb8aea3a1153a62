use proptest::prelude::*;
use trunkline_core::event::ToolCall;
use trunkline_core::failure::{Category, Failure};

use super::super::syntax::{JsonArray, ServerSentEvents};
use super::super::test_grammar;
use super::*;
use crate::dialect::test_events::{RUN, call_piece, finished, run, text, thinking, tool};

/// The bytes of a stream of these events.
fn bytes<S: StreamSyntax>(reasoning: Reasoning, events: &[Event]) -> String {
    let secrets = Arc::new(Secrets::new(["hunter2-hunter2".to_owned()]));
    let mut frames = ResponseFrames::<S>::new(&RunHead::new(RUN), "m", reasoning, secrets);
    let (mut out, mut ended) = (Vec::new(), Stream::Open);
    for event in events {
        assert_eq!(ended, Stream::Open);
        ended = frames.push(event, &mut out);
        if ended == Stream::Open {
            frames.keep_alive(Some("running"), &mut out);
        }
    }
    assert_eq!(ended, Stream::Ended);
    String::from_utf8(out).unwrap()
}

/// The frames of server-sent events, read as Google's clients do: by lines of any kind.
fn parse_events(text: &str) -> Vec<Value> {
    let is_end = |c: char| matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let lines = text.split(is_end).filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line.strip_prefix("data: ").unwrap_or(line)).unwrap()).collect()
}

fn events(reasoning: Reasoning, events: &[Event]) -> Vec<Value> {
    parse_events(&bytes::<ServerSentEvents>(reasoning, events))
}

fn whole(reasoning: Reasoning, events: &[Event]) -> Value {
    let (mut encoder, mut trace) = (WholeResponse::new(&RunHead::new(RUN), "m", reasoning), Trace::default());
    for event in events {
        trace.observe(event);
        encoder.observe(event);
    }
    let Some(Event::Finished(answer)) = events.last() else { panic!("not finished") };
    serde_json::from_slice(&encoder.finish(&trace, answer.clone())).unwrap()
}

fn parts(response: &Value) -> &Value {
    &response["candidates"][0]["content"]["parts"]
}

#[test]
fn text_is_streamed_as_responses_of_one_part() {
    let frames = events(Reasoning::Hidden, &[text("he"), text("llo"), finished("hello")]);
    let first = json!({
        "candidates": [{"content": {"role": "model", "parts": [{"text": "he"}]}, "index": 0}],
        "modelVersion": "m", "responseId": RUN,
    });
    assert_eq!((frames.len(), &frames[0]), (3, &first));
    let response = test_grammar::check(&frames);
    assert_eq!(parts(&response), &json!([{"text": "hello"}]));
    assert_eq!(response["candidates"][0]["finishReason"], "STOP");
    let usage = json!({"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5,
        "cachedContentTokenCount": 1});
    assert_eq!(response["usageMetadata"], usage);
}

#[test]
fn reasoning_is_shown_only_if_the_client_asked_for_it() {
    let run = [thinking("hm"), tool(), text("Yes."), finished("Yes.")];
    let thought = json!({"thought": true, "text": "hm\n[tool] bash {\"command\":\"ls\"}\n"});
    assert_eq!(parts(&whole(Reasoning::Shown, &run)), &json!([thought, {"text": "Yes."}]));
    assert_eq!(parts(&whole(Reasoning::Hidden, &run)), &json!([{"text": "Yes."}]));
    assert_eq!(events(Reasoning::Hidden, &run).len(), 2);
}

#[test]
fn call_is_one_part_whether_streamed_or_whole() {
    let call = ToolCall { id: "call_1".into(), name: "weather".into(), arguments: "{\"city\":\n\"Rome\"}".into() };
    let answer = Answer { calls: vec![call], ..Answer::new("", Usage::default(), Finish::ToolCalls) };
    let pieces = [
        call_piece(Some("call_1"), ""),
        call_piece(None, "{\"city\":\n"),
        call_piece(None, "\"Rome\"}"),
        Event::Finished(answer.clone()),
    ];
    let expected = json!([{"functionCall": {"id": "call_1", "name": "weather", "args": {"city": "Rome"}}}]);
    for run in [&pieces[..], &[Event::Finished(answer)]] {
        assert_eq!(parts(&test_grammar::check(&events(Reasoning::Hidden, run)))[0], expected[0]);
        assert_eq!(parts(&whole(Reasoning::Hidden, run)), &expected);
    }
}

#[test]
fn failure_is_a_line_of_its_own_that_clients_recognise() {
    let failure = Failure::new(Category::RateLimit, "429 for hunter2-hunter2");
    let run = [text("one"), Event::Failed(failure)];
    let streamed = bytes::<ServerSentEvents>(Reasoning::Hidden, &run);
    assert!(streamed.contains("\n{\"error\":{\"code\":429,"), "{streamed}");
    let error = test_grammar::check(&parse_events(&streamed));
    assert_eq!(error["error"]["message"], "CLI failed: 429 for ***");
    let array: Vec<Value> = serde_json::from_str(&bytes::<JsonArray>(Reasoning::Hidden, &run)).unwrap();
    assert_eq!(array[1], error);
}

#[test]
fn line_ends_that_json_allows_are_escaped() {
    let odd = "a\u{2028}b\u{2029}c\u{85}d\u{c}\r\né";
    let frames = events(Reasoning::Hidden, &[text(odd), finished(odd)]);
    assert_eq!(frames[0]["candidates"][0]["content"]["parts"][0]["text"], odd);
}

proptest! {
    /// For any run, both forms of a stream have the same frames, and the whole answer is their sum.
    #[test]
    fn streams_and_whole_agree(run in run(), shown in any::<bool>()) {
        let reasoning = if shown { Reasoning::Shown } else { Reasoning::Hidden };
        let frames = events(reasoning, &run);
        let array: Vec<Value> = serde_json::from_str(&bytes::<JsonArray>(reasoning, &run)).unwrap();
        prop_assert_eq!(&array, &frames);
        let sum = test_grammar::check(&frames);
        if let Some(Event::Finished(_)) = run.last() {
            let whole = whole(reasoning, &run);
            test_grammar::check_response(&whole);
            prop_assert_eq!(whole, sum);
        } else {
            prop_assert!(sum["error"].is_object());
        }
    }
}
