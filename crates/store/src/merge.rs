//! Merges consecutive deltas of a text into one event: a history shows an answer of a thousand deltas as a few messages.
//!
//! Pure: no I/O.

use trunkline_core::event::Event;

/// Limit of a merged text. A longer one continues in another event.
const MAX_MERGED_BYTES: usize = 32 * 1024;

/// An event and its sequence number.
#[derive(Debug, PartialEq)]
pub(crate) struct NumberedEvent {
    pub(crate) sequence: u64,
    pub(crate) event: Event,
}

/// The last event of a run, to which the next may be joined.
#[derive(Debug, Default)]
pub(crate) struct DeltaMerger {
    open: Option<NumberedEvent>,
}

impl DeltaMerger {
    /// Adds an event. Returns the previous one if this one does not continue it.
    pub(crate) fn add(&mut self, sequence: u64, event: Event) -> Option<NumberedEvent> {
        if let Some(open) = &mut self.open
            && join(&mut open.event, &event)
        {
            return None;
        }
        self.open.replace(NumberedEvent { sequence, event })
    }

    /// Returns the last event.
    pub(crate) fn end(&mut self) -> Option<NumberedEvent> {
        self.open.take()
    }
}

/// Appends a delta, if it belongs to the same text.
fn join(so_far: &mut Event, next: &Event) -> bool {
    let short = |a: &str, b: &str| a.len() + b.len() <= MAX_MERGED_BYTES;
    match (so_far, next) {
        (Event::Text { delta: text }, Event::Text { delta })
        | (Event::Thinking { delta: text }, Event::Thinking { delta })
            if short(text, delta) =>
        {
            text.push_str(delta);
            true
        }
        (
            Event::ToolCall { index, arguments: text, .. },
            Event::ToolCall { index: next, id: None, name: None, arguments },
        ) if index == next && short(text, arguments) => {
            text.push_str(arguments);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(delta: &str) -> Event {
        Event::Text { delta: delta.into() }
    }

    fn thinking(delta: &str) -> Event {
        Event::Thinking { delta: delta.into() }
    }

    fn call(index: u32, name: Option<&str>, arguments: &str) -> Event {
        Event::ToolCall { index, id: None, name: name.map(str::to_owned), arguments: arguments.into() }
    }

    fn notice() -> Event {
        Event::Notice { message: "n".into() }
    }

    fn merged(events: impl IntoIterator<Item = Event>) -> Vec<NumberedEvent> {
        let mut merger = DeltaMerger::default();
        let mut all: Vec<_> = (0..).zip(events).filter_map(|(sequence, event)| merger.add(sequence, event)).collect();
        all.extend(merger.end());
        all
    }

    #[test]
    fn deltas_become_one_event_with_the_number_of_the_first() {
        let n = |sequence, event| NumberedEvent { sequence, event };
        let given = [text("a"), text("b"), notice(), text("c"), thinking("d"), thinking("e"), text("f")];
        let expected = [n(0, text("ab")), n(2, notice()), n(3, text("c")), n(4, thinking("de")), n(6, text("f"))];
        assert_eq!(merged(given), expected);
        let calls = [call(0, Some("f"), ""), call(0, None, "{"), call(0, None, "}"), call(1, Some("g"), "{}")];
        assert_eq!(merged(calls), [n(0, call(0, Some("f"), "{}")), n(3, call(1, Some("g"), "{}"))]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// However a text is split, all of it is shown, in order.
        #[test]
        fn no_text_is_lost_when_deltas_are_merged(pieces in proptest::collection::vec(("[a-z\n]{0,9}", 1..3500_usize, 0..4_u8), 0..12)) {
            let event = |(piece, times, kind): &(String, usize, u8)| {
                if *kind > 0 { text(&piece.repeat(*times)) } else { notice() }
            };
            let given: Vec<Event> = pieces.iter().map(event).collect();
            let events = merged(given.clone());
            let all = |events: &[Event]| -> String {
                events.iter().map(|event| if let Event::Text { delta } = event { delta } else { "|" }).collect()
            };
            let shown: Vec<Event> = events.iter().map(|numbered| numbered.event.clone()).collect();
            prop_assert_eq!(all(&shown), all(&given));
            prop_assert!(events.is_sorted_by(|a, b| a.sequence < b.sequence));
        }
    }
}
