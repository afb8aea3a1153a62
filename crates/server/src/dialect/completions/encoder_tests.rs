use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use trunkline_core::event::Usage;
use trunkline_core::failure::{Category, Failure};
use trunkline_wire::chat::CallFormat;

fn encoder(usage: UsageChunk, echo: Option<&str>) -> TextEncoder {
    let head = Head { id: "cmpl-1".into(), created: 7, model: "m".into(), calls: CallFormat::default() };
    TextEncoder::new(head, usage, echo.map(str::to_owned), Arc::default())
}

/// The chunks of a stream, and whether it ended with `[DONE]`.
fn streamed(usage: UsageChunk, echo: Option<&str>, events: &[Event]) -> (Vec<Value>, bool) {
    let (mut encoder, mut out) = (encoder(usage, echo), Vec::new());
    let ended = events.iter().map(|event| encoder.push(event, &mut out)).last();
    assert_eq!(ended, Some(Stream::Ended));
    let mut frames = sse::SseDecoder::default().push(&out);
    let done = frames.pop_if(|frame| frame == "[DONE]").is_some();
    (frames.iter().map(|frame| serde_json::from_str(frame).unwrap()).collect(), done)
}

fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

fn finished(content: &str) -> Event {
    let usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
    Event::Finished(Answer::new(content, usage, Finish::Length))
}

fn whole(echo: Option<&str>, answer: &Event) -> Value {
    let Event::Finished(answer) = answer else { panic!("{answer:?}") };
    serde_json::from_slice(&encoder(UsageChunk::No, echo).finish(&Trace::default(), answer.clone())).unwrap()
}

#[test]
fn chunks_have_the_members_of_a_completion() {
    let events = [Event::Thinking { delta: "hm".into() }, text("Hel"), text("lo"), finished("Hello")];
    let choice =
        |text: &str, finish: Value| json!([{"text": text, "index": 0, "logprobs": null, "finish_reason": finish}]);
    let (frames, done) = streamed(UsageChunk::No, None, &events);
    let chunk = |choices: Value| json!({"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "m", "choices": choices});
    assert_eq!(frames[..2], [chunk(choice("Hel", json!(null))), chunk(choice("lo", json!(null)))]);
    assert_eq!((frames.len(), done, &frames[2]["choices"]), (3, true, &choice("", json!("length"))));
    assert!(frames[2]["trunkline"].is_object() && frames[2].get("usage").is_none(), "{}", frames[2]);

    let (frames, _) = streamed(UsageChunk::Wanted, Some("Say: "), &events);
    let texts: Vec<&Value> = frames.iter().map(|frame| &frame["choices"][0]["text"]).collect();
    assert_eq!(texts, [&json!("Say: "), &json!("Hel"), &json!("lo"), &json!(""), &Value::Null]);
    assert!(frames[..4].iter().all(|frame| frame["usage"].is_null() && frame.get("usage").is_some()));
    assert_eq!((&frames[4]["choices"], &frames[4]["usage"]["total_tokens"]), (&json!([]), &json!(5)));

    let whole = whole(Some("Say: "), &events[3]);
    assert_eq!(whole["choices"], choice("Say: Hello", json!("length")));
    assert_eq!((&whole["object"], &whole["usage"]["total_tokens"]), (&json!("text_completion"), &json!(5)));
}

#[test]
fn failed_stream_ends_with_an_error_and_without_a_finish_reason() {
    let failure = Failure::new(Category::Server, "it broke");
    let (frames, done) = streamed(UsageChunk::No, None, &[text("Hel"), Event::Failed(failure)]);
    assert_eq!((frames[1]["error"]["code"].as_str(), done), (Some("server"), false));
}

proptest! {
    #[test]
    fn whole_answer_is_the_sum_of_the_stream(
        texts in prop::collection::vec("\\PC{0,12}", 0..8),
        echo in prop::option::of("\\PC{1,8}"),
    ) {
        let mut events: Vec<Event> = texts.iter().flat_map(|delta| [text(delta), Event::Thinking { delta: "x".into() }]).collect();
        events.push(finished(&texts.concat()));
        let (frames, done) = streamed(UsageChunk::Wanted, echo.as_deref(), &events);
        let sum: String = frames.iter().filter_map(|frame| frame["choices"][0]["text"].as_str()).collect();
        let whole = whole(echo.as_deref(), events.last().unwrap());
        prop_assert_eq!((Some(&*sum), done), (whole["choices"][0]["text"].as_str(), true));
        prop_assert_eq!(&frames.last().unwrap()["usage"], &whole["usage"]);
    }
}
