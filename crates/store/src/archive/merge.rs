//! Merges consecutive deltas of a text into one event: an answer of a thousand deltas is stored as a few messages.
//!
//! Pure: no I/O.

use std::collections::HashMap;

use trunkline_core::event::Event;

use super::bound;

/// Limit of a merged text. A longer one continues in another event: as JSON it may be twice as long, and must not be cut.
const MAX_MERGED_BYTES: usize = bound::MAX_EVENT_BYTES / 2;

/// An event and its sequence number.
#[derive(Debug, PartialEq)]
pub(super) struct NumberedEvent {
    pub(super) sequence: u64,
    pub(super) event: Event,
}

/// The text of each run that may still grow.
#[derive(Debug, Default)]
pub(super) struct DeltaMerger {
    open: HashMap<String, NumberedEvent>,
}

impl DeltaMerger {
    /// Adds a delta of a run's text. Returns the previous text if the delta does not continue it.
    pub(super) fn add(&mut self, run: &str, sequence: u64, delta: Event) -> Option<NumberedEvent> {
        if let Some(open) = self.open.get_mut(run)
            && join(&mut open.event, &delta)
        {
            return None;
        }
        self.open.insert(run.to_owned(), NumberedEvent { sequence, event: delta })
    }

    /// Returns the open text of a run, because another event follows or the run ends.
    pub(super) fn end(&mut self, run: &str) -> Option<NumberedEvent> {
        self.open.remove(run)
    }

    /// Returns the open texts of all runs. Further deltas become new events.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (String, NumberedEvent)> {
        self.open.drain()
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

/// Whether the event is a delta that others may be merged with. A delta that is too long already is not.
pub(super) fn is_delta(event: &Event) -> bool {
    match event {
        Event::Text { delta: text } | Event::Thinking { delta: text } | Event::ToolCall { arguments: text, .. } => {
            text.len() <= MAX_MERGED_BYTES
        }
        Event::Started { .. }
        | Event::ToolStarted { .. }
        | Event::ToolFinished { .. }
        | Event::Notice { .. }
        | Event::Unknown { .. }
        | Event::Workspace(_)
        | Event::Attempted(_)
        | Event::Finished(_)
        | Event::Failed(_) => false,
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

    /// Merges events as the writer task does.
    fn merged(events: impl IntoIterator<Item = Event>) -> Vec<NumberedEvent> {
        let mut merging = DeltaMerger::default();
        let mut all = Vec::new();
        for (sequence, event) in (0..).zip(events) {
            if is_delta(&event) {
                all.extend(merging.add("r", sequence, event));
            } else {
                all.extend(merging.end("r"));
                all.push(NumberedEvent { sequence, event });
            }
        }
        all.extend(merging.end("r"));
        assert!(merging.open.is_empty());
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

    #[test]
    fn deltas_of_different_runs_are_not_merged() {
        let mut merging = DeltaMerger::default();
        assert_eq!(merging.add("a", 0, text("1")), None);
        assert_eq!(merging.add("b", 0, text("2")), None);
        assert_eq!(merging.add("a", 1, text("3")), None);
        assert_eq!(merging.end("a"), Some(NumberedEvent { sequence: 0, event: text("13") }));
        let left: Vec<_> = merging.drain().collect();
        assert_eq!(left, [("b".to_owned(), NumberedEvent { sequence: 0, event: text("2") })]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// However a text is split, all of it is stored, in order, in events that need not be cut.
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
            let stored: Vec<Event> = events.iter().map(|numbered| numbered.event.clone()).collect();
            prop_assert_eq!(all(&stored), all(&given));
            prop_assert!(events.is_sorted_by(|a, b| a.sequence < b.sequence));
            for event in &stored {
                prop_assert_eq!(bound::event(event).cut, None);
            }
        }
    }
}
