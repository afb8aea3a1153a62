//! Complete messages that repeat their own deltas: the text is shown once, even if their ids differ.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;

/// Block of a message.
#[derive(Debug, Clone)]
enum Block {
    Text(String),
    Thinking(String),
    Tool,
}

/// How a CLI prints a message.
#[derive(Debug, Clone, Copy)]
struct Habits {
    /// `message_start` comes before the deltas.
    starts: bool,
    /// The complete message has the id of its deltas, another id for each block, or none.
    ids: Ids,
    /// Each block is printed as a message of its own.
    separate: bool,
    /// The complete blocks come after all deltas of the message, not each after the deltas of its block.
    at_the_end: bool,
    /// The events of the stream have an envelope.
    wrapped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ids {
    Same,
    Others,
    None,
}

fn content(block: &Block, nth: usize) -> Value {
    match block {
        Block::Text(text) => json!({"type": "text", "text": text}),
        Block::Thinking(text) => json!({"type": "thinking", "thinking": text}),
        Block::Tool => json!({"type": "tool_use", "id": format!("t{nth}"), "name": "Bash", "input": {}}),
    }
}

fn complete(message: usize, first: usize, blocks: &[Block], habits: Habits) -> Value {
    let blocks: Vec<Value> = blocks.iter().enumerate().map(|(nth, block)| content(block, first + nth)).collect();
    let mut message_event = json!({"type": "assistant", "message": {"role": "assistant", "content": blocks}});
    match habits.ids {
        Ids::Same => message_event["message"]["id"] = json!(format!("m{message}")),
        Ids::Others => message_event["message"]["id"] = json!(format!("w{message}-{first}")),
        Ids::None => {}
    }
    message_event
}

/// Deltas of a block, with its text split into pieces of `size` characters.
fn deltas(index: usize, block: &Block, size: usize) -> Vec<Value> {
    let (key, kind, text) = match block {
        Block::Text(text) => ("text", "text_delta", text.as_str()),
        Block::Thinking(text) => ("thinking", "thinking_delta", text.as_str()),
        Block::Tool => ("partial_json", "input_json_delta", "{}"),
    };
    let chars: Vec<char> = text.chars().collect();
    let pieces = chars.chunks(size).map(|piece| piece.iter().collect::<String>());
    let mut events = vec![json!({"type": "content_block_start", "index": index, "content_block": {"type": "x"}})];
    events.extend(
        pieces.map(|piece| json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, key: piece}})),
    );
    events.push(json!({"type": "content_block_stop", "index": index}));
    events
}

/// Lines of a conversation; without `size`, only the complete messages.
fn lines(messages: &[Vec<Block>], habits: Habits, size: Option<usize>) -> Vec<Value> {
    let mut lines = Vec::new();
    for (message, blocks) in messages.iter().enumerate() {
        let streamed =
            |event: Value| if habits.wrapped { json!({"type": "stream_event", "event": event}) } else { event };
        let mut blocks_so_far = Vec::new();
        if habits.starts && size.is_some() {
            let id = format!("m{message}");
            lines.push(streamed(json!({"type": "message_start", "message": {"id": id, "content": []}})));
        }
        for (nth, block) in blocks.iter().enumerate() {
            if let Some(size) = size {
                lines.extend(deltas(nth, block, size).into_iter().map(streamed));
            }
            if habits.separate {
                blocks_so_far.push(complete(message, nth, std::slice::from_ref(block), habits));
            }
            if !habits.at_the_end {
                lines.append(&mut blocks_so_far);
            }
        }
        if !habits.separate {
            blocks_so_far.push(complete(message, 0, blocks, habits));
        }
        lines.append(&mut blocks_so_far);
        if size.is_some() {
            lines.push(streamed(json!({"type": "message_stop"})));
        }
        for (nth, _) in blocks.iter().enumerate().filter(|(_, block)| matches!(block, Block::Tool)) {
            let result = json!({"type": "tool_result", "tool_use_id": format!("t{nth}"), "content": "ok"});
            lines.push(json!({"type": "user", "message": {"content": [result]}}));
        }
    }
    lines
}

struct DecodedMessages {
    shown: String,
    thought: String,
    content: String,
}

fn read(format: Format, lines: &[Value], cut: usize) -> DecodedMessages {
    let bytes: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut decoder = Decoder::new(format, Context::default());
    let mut events: Vec<Event> = bytes.as_bytes().chunks(cut).flat_map(|piece| decoder.push(piece)).collect();
    let mut conclusion = decoder.conclude(Ending::Open, "", "");
    events.append(&mut conclusion.events);
    let mut read = DecodedMessages { shown: String::new(), thought: String::new(), content: conclusion.content };
    for event in events {
        if let Event::Text { delta } = event {
            read.shown += &delta;
        } else if let Event::Thinking { delta } = event {
            read.thought += &delta;
        }
    }
    read
}

/// Removes the gaps between messages: if a CLI does not print the start of a message, there is no gap to show.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

fn messages() -> impl Strategy<Value = Vec<Vec<Block>>> {
    let block = prop_oneof![
        3 => "[a-c]{1,6}( [a-c]{1,3})?".prop_map(Block::Text),
        1 => "[x-z]{1,8}".prop_map(Block::Thinking),
        1 => Just(Block::Tool),
    ];
    prop::collection::vec(prop::collection::vec(block, 1..5), 1..4)
}

fn habits() -> impl Strategy<Value = Habits> {
    let ids = prop::sample::select(vec![Ids::Same, Ids::Others, Ids::None]);
    (any::<bool>(), ids, any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(starts, ids, separate, at_the_end, wrapped)| Habits { starts, ids, separate, at_the_end, wrapped })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn deltas_change_nothing_when_the_complete_message_follows(
        messages in messages(), habits in habits(), size in 1_usize..5, cut in 1_usize..300,
    ) {
        for format in [Format::Claude, Format::Qwen, Format::StreamJson] {
            let alone = read(format, &lines(&messages, habits, None), 4096);
            let both = read(format, &lines(&messages, habits, Some(size)), cut);
            prop_assert_eq!(&both.content, &alone.content);
            prop_assert_eq!(squeezed(&both.shown), squeezed(&alone.shown));
            prop_assert_eq!(squeezed(&both.thought), squeezed(&alone.thought));
        }
    }
}

fn stream(events: &[Value]) -> Vec<Value> {
    events.iter().map(|event| json!({"type": "stream_event", "event": event})).collect()
}

#[test]
fn text_is_shown_once_when_a_reasoning_model_gets_a_new_message_id_after_its_thoughts() {
    let text = Block::Text("Final.".to_owned());
    let mut lines = stream(&[json!({"type": "message_start", "message": {"id": "a", "content": []}})]);
    lines.extend(stream(&deltas(0, &Block::Thinking("Let me see.".to_owned()), 4)));
    lines.push(json!({"type": "assistant", "message": {"id": "a", "content": [
        {"type": "thinking", "thinking": "Let me see.", "signature": ""}]}}));
    lines.extend(stream(&deltas(0, &text, 3)));
    lines.push(json!({"type": "assistant", "message": {"id": "b", "content": [{"type": "text", "text": "Final."}]}}));
    lines.extend(stream(&[json!({"type": "message_stop"})]));
    let result = json!({"type": "result", "subtype": "success", "is_error": false, "result": "Final."});
    for end in [None, Some(result)] {
        let lines: Vec<Value> = lines.iter().cloned().chain(end).collect();
        let read = read(Format::Qwen, &lines, 50);
        assert_eq!((read.shown.as_str(), read.thought.as_str()), ("Final.", "Let me see."));
        assert_eq!(read.content, "Final.");
    }
}

#[test]
fn text_is_shown_twice_when_it_was_written_twice() {
    let message =
        |id: &str| json!({"type": "assistant", "message": {"id": id, "content": [{"type": "text", "text": "Done."}]}});
    let tool =
        json!({"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t", "content": ""}]}});
    let mut lines = stream(&[json!({"type": "message_start", "message": {"id": "a", "content": []}})]);
    lines.extend(stream(&deltas(0, &Block::Text("Done.".to_owned()), 2)));
    lines.extend([message("a"), tool, message("b"), message("c")]);
    assert_eq!(read(Format::Claude, &lines, 64).shown, "Done.\n\nDone.\n\nDone.");
}

#[test]
fn a_complete_message_adds_the_text_that_its_deltas_lacked() {
    for (streamed, whole, shown) in [
        ("Hel", "Hello", "Hello"),
        ("", "Hello", "Hello"),
        ("\n\nHello\n", "Hello", "\n\nHello\n"),
        ("Hello", "Other", "Hello\n\nOther"),
    ] {
        let mut lines = stream(&deltas(0, &Block::Text(streamed.to_owned()), 2));
        lines.push(json!({"type": "assistant", "message": {"content": whole}}));
        assert_eq!(read(Format::Claude, &lines, 64).shown, shown, "{streamed:?} {whole:?}");
    }
}

#[test]
fn an_api_error_is_withheld_once_when_deltas_and_the_complete_message_contain_it() {
    let text = "So far[API Error: 503 busy]";
    let mut lines = stream(&deltas(0, &Block::Text(text.to_owned()), 100));
    lines.push(json!({"type": "assistant", "message": {"id": "b", "content": [{"type": "text", "text": text}]}}));
    lines.push(json!({"type": "result", "subtype": "success", "is_error": false}));
    let read = read(Format::Qwen, &lines, 64);
    assert_eq!((read.shown.as_str(), read.content.as_str()), (text, text));
}
