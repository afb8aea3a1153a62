//! Whatever a service streams, however it is cut: the same frames, and an answer that ends exactly once.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_core::event::Event;
use trunkline_fuzz::Input;
use trunkline_wire::sse::{self, Decoder};
use trunkline_wire::upstream::Reader;

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::read(data) else { return };
    frames(&input);
    answer(&input);
});

fn frames(input: &Input<'_>) {
    let whole = Decoder::default().push(input.bytes);
    let mut decoder = Decoder::default();
    let cut: Vec<String> = input.pieces().flat_map(|piece| decoder.push(piece)).collect();
    assert_eq!(whole, cut, "it matters how the stream was cut");
    let mut written = Vec::new();
    whole.iter().for_each(|frame| sse::data(&mut written, frame));
    assert_eq!(Decoder::default().push(&written), whole, "what is written is not what is read");
}

fn answer(input: &Input<'_>) {
    let mut reader = Reader::new(&[]);
    let mut events: Vec<Event> = input.pieces().flat_map(|piece| reader.push(piece)).collect();
    events.extend(reader.conclude("four"));
    let last = events.iter().position(|event| event.clone().end().is_some());
    assert_eq!(last, Some(events.len() - 1), "one end, and it is the last: {events:?}");
}
