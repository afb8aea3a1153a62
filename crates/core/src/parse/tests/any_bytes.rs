//! Properties that hold for any output.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;

/// Lines that resemble events of every format, with parts missing or of the wrong type.
fn odd_event() -> impl Strategy<Value = String> {
    let keys = prop::sample::select(vec![
        "type",
        "subtype",
        "message",
        "content",
        "item",
        "text",
        "event",
        "delta",
        "result",
        "is_error",
        "part",
        "role",
        "error",
        "status",
        "usage",
        "session_id",
        "input_tokens",
        "id",
        "index",
        "messages",
        "response",
        "stats",
        "abandoned_blocks",
        "done",
        "tokens_used",
    ]);
    let words = prop::sample::select(vec![
        "assistant",
        "result",
        "stream_event",
        "content_block_delta",
        "text_delta",
        "item.completed",
        "agent_message",
        "turn.completed",
        "turn.failed",
        "message",
        "user",
        "tool_use",
        "text",
        "step_finish",
        "error",
        "init",
        "system",
        "content",
    ]);
    let leaf = prop_oneof![
        words.prop_map(|word| json!(word)),
        any::<i32>().prop_map(|n| json!(n)),
        any::<bool>().prop_map(|b| json!(b)),
        Just(Value::Null),
    ];
    let value = leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::vec((keys.clone(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    });
    value.prop_map(|value| value.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn events_are_the_same_when_bytes_are_split_anywhere(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
        let cut = cut.min(bytes.len());
        for format in Format::ALL {
            let mut whole = Decoder::new(format, Context::default());
            let mut events = whole.push(&bytes);
            let mut end = whole.conclude(Ending::Code(0), "", "");
            events.append(&mut end.events);

            let mut pieces = Decoder::new(format, Context::default());
            let mut cut_events = pieces.push(&bytes[..cut]);
            cut_events.extend(pieces.push(&bytes[cut..]));
            let mut cut_end = pieces.conclude(Ending::Code(0), "", "");
            cut_events.append(&mut cut_end.events);

            prop_assert_eq!(joined(&events), joined(&cut_events));
            prop_assert_eq!(end, cut_end);
        }
    }

    #[test]
    fn malformed_events_never_panic(lines in prop::collection::vec(odd_event(), 0..8), stderr in "\\PC{0,40}", exit in -2i32..3) {
        for format in Format::ALL {
            let mut decoder = Decoder::new(format, Context::default());
            decoder.push(lines.join("\n").as_bytes());
            let ending = if exit < 0 { Ending::Signal(-exit) } else { Ending::Code(exit) };
            decoder.conclude(ending, &stderr, "");
        }
    }
}

/// Joins adjacent text events, because plain text is split into deltas as it arrives.
fn joined(events: &[Event]) -> Vec<Event> {
    let mut joined: Vec<Event> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(Event::Text { delta }), Event::Text { delta: more }) => delta.push_str(more),
            (_, event) => joined.push(event.clone()),
        }
    }
    joined
}
