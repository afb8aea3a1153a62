use std::time::Duration;

use proptest::prelude::*;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use trunkline_core::event::{Attempted, Finish, ToolCall, Usage};
use trunkline_core::failure::{Category, Failure};

use super::super::items::InputItem;
use super::super::test_grammar;
use super::*;

const RUN: &str = "01a1e9c4-2a49-76a6-bf90-9dbc3a2f6e01";

#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    background: bool,
    tool_items: bool,
}

fn encoder(asked: Asked, written: Written) -> ResponseEncoder {
    let echo = json!({
        "background": asked.background, "instructions": null, "max_output_tokens": null, "max_tool_calls": null,
        "metadata": {"a": "b"}, "model": "m", "parallel_tool_calls": true, "previous_response_id": null,
        "reasoning": {}, "service_tier": "default", "store": true, "temperature": 1.0, "text": {},
        "tool_choice": "auto", "tools": [], "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "user": null,
    });
    let items = [InputItem::of_user("hi".to_owned())];
    let Asked { background, tool_items } = asked;
    let request =
        StoredRequest { background, tool_items, ..StoredRequest::new(to_raw_value(&echo).unwrap(), &items, true) };
    ResponseEncoder::new(&RunHead::new(RUN), request, Arc::new(secrets()), written)
}

fn secrets() -> Secrets {
    Secrets::new(["hunter2-hunter2".to_owned()])
}

/// The frames of a stream of these events.
fn stream(mut encoder: ResponseEncoder, events: &[Event]) -> Vec<Value> {
    let mut out = Vec::new();
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

/// The events as the log has them.
fn logged(events: &[Event]) -> Vec<Event> {
    let (mut log, mut logged) = (Vec::new(), LoggedEvents::new(secrets()));
    for event in events {
        logged.push(event, &mut |event| log.push(event.clone()));
    }
    log
}

fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

fn finished(content: &str) -> Event {
    let usage = Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 1, estimated: false };
    Event::Finished(Answer::new(content, usage, Finish::Stop))
}

fn tool(id: &str) -> Event {
    Event::ToolStarted { id: id.into(), name: "bash".into(), input: json!({"command": "ls"}) }
}

fn kinds(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap().trim_start_matches("response.")).collect()
}

#[test]
fn text_is_streamed_in_the_order_that_clients_expect() {
    let frames = stream(encoder(Asked::default(), Written::All), &[text("he"), text("llo"), finished("hello")]);
    let response = test_grammar::check(&frames);
    assert_eq!(
        kinds(&frames),
        [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]
    );
    assert_eq!(response["output"][0]["content"][0]["text"], "hello");
    assert_eq!(response["id"], "resp_01a1e9c42a4976a6bf909dbc3a2f6e01");
    assert_eq!(response["output"][0]["id"], "msg_01a1e9c42a4976a6bf909dbc3a2f6e01_0");
    assert_eq!(response["usage"]["total_tokens"], 5);
    assert_eq!(
        frames[4],
        json!({
            "type": "response.output_text.delta", "sequence_number": 4, "delta": "he", "output_index": 0,
            "item_id": "msg_01a1e9c42a4976a6bf909dbc3a2f6e01_0", "content_index": 0, "logprobs": [],
        })
    );
}

#[test]
fn tools_of_the_agent_are_reasoning_unless_the_client_asks_for_items() {
    let done = Event::ToolFinished { id: "t".into(), output: "README.md".into(), ok: true };
    let events = [text("Let me look."), tool("t"), done, text("\n\nThere is one."), finished("There is one.")];
    let types = |response: &Value| {
        let items = response["output"].as_array().unwrap().iter();
        items.map(|item| item["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let plain = test_grammar::check(&stream(encoder(Asked::default(), Written::All), &events));
    assert_eq!(types(&plain), ["message", "reasoning", "message"]);
    assert_eq!(plain["output"][1]["summary"][0]["text"], "[tool] bash {\"command\":\"ls\"}\n");
    let asked = Asked { tool_items: true, ..Asked::default() };
    let own = test_grammar::check(&stream(encoder(asked, Written::All), &events));
    assert_eq!(types(&own), ["message", "trunkline:tool_call", "message"]);
    let call = &own["output"][1];
    assert_eq!(
        (&call["output"], &call["ok"], &call["status"]),
        (&json!("README.md"), &json!(true), &json!("completed"))
    );
}

#[test]
fn calls_for_the_client_are_items_whether_streamed_or_whole() {
    let call = ToolCall { id: "call_1".into(), name: "weather".into(), arguments: "{\"city\":\"Rome\"}".into() };
    let answer = Answer { calls: vec![call], ..Answer::new("", Usage::default(), Finish::ToolCalls) };
    let piece = |id: Option<&str>, arguments: &str| Event::ToolCall {
        index: 0,
        id: id.map(str::to_owned),
        name: id.map(|_| "weather".to_owned()),
        arguments: arguments.to_owned(),
    };
    let streamed = [
        piece(Some("call_1"), ""),
        piece(None, "{\"city\":"),
        piece(None, "\"Rome\"}"),
        Event::Finished(answer.clone()),
    ];
    let streamed = test_grammar::check(&stream(encoder(Asked::default(), Written::All), &streamed));
    let whole = test_grammar::check(&stream(encoder(Asked::default(), Written::All), &[Event::Finished(answer)]));
    assert_eq!(streamed["output"], whole["output"]);
    let expected = json!([{
        "id": "fc_01a1e9c42a4976a6bf909dbc3a2f6e01_0", "type": "function_call", "status": "completed",
        "call_id": "call_1", "name": "weather", "arguments": "{\"city\":\"Rome\"}",
    }]);
    assert_eq!(whole["output"], expected);
}

#[test]
fn empty_answer_is_an_empty_message() {
    let response = test_grammar::check(&stream(encoder(Asked::default(), Written::All), &[finished("")]));
    assert_eq!(response["output"][0]["content"][0]["text"], "");
}

#[test]
fn answer_that_is_cut_is_incomplete() {
    for (finish, reason) in [(Finish::Length, "max_output_tokens"), (Finish::ContentFilter, "content_filter")] {
        let end = Event::Finished(Answer::new("half", Usage::default(), finish));
        let frames = stream(encoder(Asked::default(), Written::All), &[text("half"), end]);
        let response = test_grammar::check(&frames);
        assert_eq!(frames.last().unwrap()["type"], "response.incomplete");
        assert_eq!(
            (&response["status"], &response["incomplete_details"]["reason"]),
            (&"incomplete".into(), &reason.into())
        );
    }
}

#[test]
fn codes_of_failures_tell_clients_whether_to_ask_again() {
    for (category, status, code) in [
        (Category::RateLimit, "failed", Some("rate_limit_exceeded")),
        (Category::Quota, "failed", Some("insufficient_quota")),
        (Category::Authentication, "failed", Some("invalid_prompt")),
        (Category::Server, "failed", Some("server_error")),
        (Category::Cancelled, "cancelled", None),
    ] {
        let events = [text("half"), Event::Failed(Failure::new(category, "no"))];
        let frames = stream(encoder(Asked::default(), Written::All), &events);
        let response = test_grammar::check(&frames);
        assert_eq!((response["status"].as_str(), response["error"]["code"].as_str()), (Some(status), code));
        assert_eq!(response["output"][0]["status"], "incomplete");
    }
}

fn event() -> impl Strategy<Value = Event> {
    // Beginnings of keys, whole keys and a known secret: the log has these at other places than the run.
    let words = prop_oneof![
        "[a-z \n]{0,6}",
        Just(" A".to_owned()),
        Just("s".to_owned()),
        Just("sk-".to_owned()),
        Just("sk-abcdefghijkl".to_owned()),
        Just("hunter2-".to_owned()),
        Just("hunter2".to_owned()),
        Just("é".to_owned())
    ];
    let id = prop_oneof![Just("t1".to_owned()), Just("t2".to_owned())];
    prop_oneof![
        4 => words.clone().prop_map(|delta| Event::Text { delta }),
        2 => words.clone().prop_map(|delta| Event::Thinking { delta }),
        1 => (id.clone(), words.clone()).prop_map(|(id, name)| Event::ToolStarted { id, name, input: json!({"a": 1}) }),
        1 => (id, words.clone(), any::<bool>()).prop_map(|(id, output, ok)| Event::ToolFinished { id, output, ok }),
        1 => (0..3_u32, proptest::option::of("[a-z]{1,3}"), words.clone()).prop_map(|(index, id, arguments)| {
            Event::ToolCall { index, name: id.clone(), id, arguments }
        }),
        1 => words.clone().prop_map(|message| Event::Notice { message }),
        1 => words.prop_map(|line| Event::Unknown { line }),
        1 => Just(Event::Started { session: None, model: None }),
        1 => (0..5000_u64).prop_map(|millis| Event::Attempted(Box::new(Attempted {
            provider: "p".into(), model: "m".into(), category: None, message: None,
            duration: Duration::from_millis(millis), workspace: None, sandbox: None,
        }))),
    ]
}

fn end() -> impl Strategy<Value = Event> {
    let finish = prop_oneof![Just(Finish::Stop), Just(Finish::Length), Just(Finish::ToolCalls)];
    let category = prop_oneof![Just(Category::Server), Just(Category::Cancelled), Just(Category::Quota)];
    prop_oneof![
        3 => ("[a-z ]{0,8}", finish).prop_map(|(content, finish)| Event::Finished(Answer::new(content, Usage::default(), finish))),
        1 => category.prop_map(|category| Event::Failed(Failure::new(category, "no"))),
    ]
}

fn run_log() -> impl Strategy<Value = (Vec<Event>, Asked)> {
    let events = (proptest::collection::vec(event(), 0..24), end()).prop_map(|(mut events, end)| {
        events.push(end);
        events
    });
    let asked = (any::<bool>(), any::<bool>()).prop_map(|(background, tool_items)| Asked { background, tool_items });
    (events, asked)
}

proptest! {
    /// For any run: the stream keeps to the grammar, the whole answer is its sum, and what is read from the log later is the same
    /// stream, with the same ids and numbers, from any frame on.
    #[test]
    fn stream_whole_and_replay_agree((events, asked) in run_log(), after in 0..40_u64, cut in 0..30_usize) {
        let live = stream(encoder(asked, Written::All), &events);
        let response = test_grammar::check(&live);

        let log = logged(&events);
        let replay = stream(encoder(asked, Written::All).read_again(), &log);
        prop_assert_eq!(&replay, &live);
        let rest = stream(encoder(asked, Written::After(after)).read_again(), &log);
        prop_assert_eq!(&rest[..], &live[live.len().min(after as usize + 1)..]);

        // Read later, whole.
        let mut read = encoder(asked, Written::None).read_again();
        for event in &log {
            let _ = read.take(event, &mut Vec::new());
        }
        prop_assert_eq!(serde_json::from_slice::<Value>(&read.object(Status::InProgress)).unwrap(), response.clone());

        // Answered whole. The client gets its own secrets.
        if let Some(Event::Finished(answer)) = log.last() {
            let (mut whole, mut trace) = (encoder(asked, Written::None), Trace::default());
            for event in &log {
                trace.observe(event);
                WholeAnswer::observe(&mut whole, event);
            }
            let whole: Value = serde_json::from_slice(&WholeAnswer::finish(whole, &trace, answer.clone())).unwrap();
            prop_assert_eq!(whole, response);
        }

        // Read in the middle: every item so far is there.
        let cut = cut.min(log.len() - 1);
        let mut partial = encoder(asked, Written::None).read_again();
        for event in &log[..cut] {
            let _ = partial.take(event, &mut Vec::new());
        }
        let partial: Value = serde_json::from_slice(&partial.object(Status::InProgress)).unwrap();
        test_grammar::check_response(&partial);
        prop_assert_eq!(&partial["status"], "in_progress");
    }
}
