//! Stream of a model service: the frames do not depend on how it was split, and the answer ends exactly once.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_core::event::Event;
use trunkline_fuzz::FuzzInput;
use trunkline_wire::sse::{self, SseDecoder};
use trunkline_wire::upstream::UpstreamReader;

fuzz_target!(|data: &[u8]| {
    let Some(input) = FuzzInput::read(data) else { return };
    frames(&input);
    answer(&input);
});

fn frames(input: &FuzzInput<'_>) {
    let whole = SseDecoder::default().push(input.bytes);
    let mut decoder = SseDecoder::default();
    let cut: Vec<String> = input.pieces().flat_map(|piece| decoder.push(piece)).collect();
    assert_eq!(whole, cut, "the frames depend on how the stream was split");
    let mut written = Vec::new();
    whole.iter().for_each(|frame| sse::data(&mut written, frame));
    assert_eq!(SseDecoder::default().push(&written), whole, "encoding and decoding changed the frames");
}

fn answer(input: &FuzzInput<'_>) {
    let mut reader = UpstreamReader::new(&[]);
    let mut events: Vec<Event> = input.pieces().flat_map(|piece| reader.push(piece)).collect();
    events.extend(reader.conclude("four"));
    let last = events.iter().position(|event| event.clone().end().is_some());
    assert_eq!(last, Some(events.len() - 1), "the answer does not end exactly once, with its last event: {events:?}");
}
