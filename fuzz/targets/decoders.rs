//! Output of a CLI: the events do not depend on how the output was split, and the conclusion is valid.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_core::event::Event;
use trunkline_core::parse::{Conclusion, Context, Decoder, Ending, Format};
use trunkline_fuzz::FuzzInput;

const ENDINGS: [Ending; 6] =
    [Ending::Code(0), Ending::Code(1), Ending::Signal(9), Ending::TimedOut("idle"), Ending::Cancelled, Ending::Open];

fuzz_target!(|data: &[u8]| {
    let Some(input) = FuzzInput::read(data) else { return };
    let format = Format::ALL[input.choice % Format::ALL.len()];
    let ending = ENDINGS[input.choice / Format::ALL.len() % ENDINGS.len()];
    let whole = decode(format, ending, [input.bytes]);
    let cut = decode(format, ending, input.pieces());
    assert_eq!(whole, cut, "the events depend on how the output was split");
    let (events, conclusion) = whole;
    assert!(
        events.iter().all(|event| event.clone().end().is_none()),
        "a decoder emitted the end of a turn: {events:?}"
    );
    assert!(conclusion.session.is_none_or(|session| !session.0.is_empty()), "a session with an empty id");
    assert!(conclusion.failure.is_none_or(|failure| !failure.message.is_empty()), "a failure with an empty message");
});

/// All events, with adjacent text joined: text deltas depend on how the output was split.
fn decode<'a>(format: Format, ending: Ending, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Event>, Conclusion) {
    let mut decoder = Decoder::new(format, Context::default());
    let mut events: Vec<Event> = Vec::new();
    for piece in pieces {
        decoder.push(piece).into_iter().for_each(|event| join(&mut events, event));
    }
    let mut conclusion = decoder.conclude(ending, "", "four");
    std::mem::take(&mut conclusion.events).into_iter().for_each(|event| join(&mut events, event));
    (events, conclusion)
}

fn join(events: &mut Vec<Event>, event: Event) {
    match (events.last_mut(), event) {
        (Some(Event::Text { delta }), Event::Text { delta: more }) => delta.push_str(&more),
        (_, event) => events.push(event),
    }
}
