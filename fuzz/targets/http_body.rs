//! Body of a chat request: either a turn from which a prompt can be built, or an error with a valid body.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use trunkline_core::event::{Answer, Event, Finish, Usage};
use trunkline_core::prompt::{self};
use trunkline_core::secret::Secrets;
use trunkline_core::turn::Turn;
use trunkline_core::vocabulary::SystemPlacement;
use trunkline_wire::chat::{CallFormat, ChatRequest};
use trunkline_wire::response::Head;
use trunkline_wire::stream::{Chunks, Stream, UsageChunk};

fuzz_target!(|data: &[u8]| {
    match ChatRequest::parse(data).and_then(ChatRequest::into_turn) {
        Ok(turn) => prompts(&turn),
        Err(error) => {
            let body = serde_json::from_str::<serde_json::Value>(&error.body()).expect("the body of an error is JSON");
            assert!(body["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        }
    }
});

fn prompts(turn: &Turn) {
    assert!(!turn.messages.is_empty(), "a turn without messages");
    for placement in [SystemPlacement::Inline, SystemPlacement::Apart] {
        let prompt = prompt::build(Some("# rules"), &turn.messages, placement);
        assert!(prompt.text.starts_with("# rules"), "the instructions are not first");
    }
    let new = prompt::new_messages(&turn.messages);
    assert!(turn.messages.ends_with(new), "the latest messages are not the end of the history");
    let _ = prompt::turn_text(turn);
    stream(turn);
}

/// Streams the last message back as the answer: every frame must be JSON.
fn stream(turn: &Turn) {
    let text = turn.messages.last().map(|message| message.text.clone()).unwrap_or_default();
    let head = Head { id: "cmpl-0".to_owned(), created: 0, model: turn.model.clone(), calls: CallFormat::ToolCalls };
    let mut chunks = Chunks::new(head, UsageChunk::Wanted, Arc::new(Secrets::default()));
    let mut out = Vec::new();
    chunks.push(&Event::Text { delta: text.clone() }, &mut out);
    let end = Event::Finished(Answer::new(text, Usage::default(), Finish::Stop));
    assert!(matches!(chunks.push(&end, &mut out), Stream::Ended));
    let frames = trunkline_wire::sse::SseDecoder::default().push(&out);
    let (done, frames) = frames.split_last().expect("the stream has frames");
    assert_eq!(done, "[DONE]");
    for frame in frames {
        serde_json::from_str::<serde_json::Value>(frame).expect("every frame is JSON");
    }
}
