//! Pieces of one text become one event: an answer of a thousand deltas is kept as the few messages it was. Pure.

use std::collections::HashMap;

use trunkline_core::event::Event;

use super::bound;

/// A text that grows beyond this goes on in another event: as JSON it may be twice as long, and must not be cut.
const MOST: usize = bound::EVENT / 2;

/// An event and its number.
#[derive(Debug, PartialEq)]
pub(super) struct Numbered {
    pub(super) sequence: u64,
    pub(super) event: Event,
}

/// Of each run, the text that may still go on.
#[derive(Debug, Default)]
pub(super) struct Merging {
    open: HashMap<String, Numbered>,
}

impl Merging {
    /// Takes the next piece of a run's text; gives the one before it, if that is complete.
    pub(super) fn add(&mut self, run: &str, sequence: u64, piece: Event) -> Option<Numbered> {
        if let Some(open) = self.open.get_mut(run)
            && join(&mut open.event, &piece)
        {
            return None;
        }
        self.open.insert(run.to_owned(), Numbered { sequence, event: piece })
    }

    /// What a run has left when something else comes, or it ends.
    pub(super) fn end(&mut self, run: &str) -> Option<Numbered> {
        self.open.remove(run)
    }

    /// What all of them have left. Their texts go on in other events.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (String, Numbered)> {
        self.open.drain()
    }
}

/// Adds one piece to another, if they are of the same text.
fn join(so_far: &mut Event, next: &Event) -> bool {
    let short = |a: &str, b: &str| a.len() + b.len() <= MOST;
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

/// Whether more of the same may follow, to be kept with it. One that is too long as it is stays alone.
pub(super) fn is_piece(event: &Event) -> bool {
    match event {
        Event::Text { delta: text } | Event::Thinking { delta: text } | Event::ToolCall { arguments: text, .. } => {
            text.len() <= MOST
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

    /// As the writer does it.
    fn merged(events: impl IntoIterator<Item = Event>) -> Vec<Numbered> {
        let mut merging = Merging::default();
        let mut all = Vec::new();
        for (sequence, event) in (0..).zip(events) {
            if is_piece(&event) {
                all.extend(merging.add("r", sequence, event));
            } else {
                all.extend(merging.end("r"));
                all.push(Numbered { sequence, event });
            }
        }
        all.extend(merging.end("r"));
        assert!(merging.open.is_empty());
        all
    }

    #[test]
    fn pieces_of_a_text_are_one_event_under_the_number_of_the_first() {
        let n = |sequence, event| Numbered { sequence, event };
        let given = [text("a"), text("b"), notice(), text("c"), thinking("d"), thinking("e"), text("f")];
        let expected = [n(0, text("ab")), n(2, notice()), n(3, text("c")), n(4, thinking("de")), n(6, text("f"))];
        assert_eq!(merged(given), expected);
        let calls = [call(0, Some("f"), ""), call(0, None, "{"), call(0, None, "}"), call(1, Some("g"), "{}")];
        assert_eq!(merged(calls), [n(0, call(0, Some("f"), "{}")), n(3, call(1, Some("g"), "{}"))]);
    }

    #[test]
    fn runs_do_not_mix() {
        let mut merging = Merging::default();
        assert_eq!(merging.add("a", 0, text("1")), None);
        assert_eq!(merging.add("b", 0, text("2")), None);
        assert_eq!(merging.add("a", 1, text("3")), None);
        assert_eq!(merging.end("a"), Some(Numbered { sequence: 0, event: text("13") }));
        let left: Vec<_> = merging.drain().collect();
        assert_eq!(left, [("b".to_owned(), Numbered { sequence: 0, event: text("2") })]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// However a text is cut, all of it is kept, in order, in events that need no cutting.
        #[test]
        fn no_text_is_lost(pieces in proptest::collection::vec(("[a-z\n]{0,9}", 1..3500_usize, 0..4_u8), 0..12)) {
            let event = |(piece, times, kind): &(String, usize, u8)| {
                if *kind > 0 { text(&piece.repeat(*times)) } else { notice() }
            };
            let given: Vec<Event> = pieces.iter().map(event).collect();
            let events = merged(given.clone());
            let all = |events: &[Event]| -> String {
                events.iter().map(|event| if let Event::Text { delta } = event { delta } else { "|" }).collect()
            };
            let kept: Vec<Event> = events.iter().map(|numbered| numbered.event.clone()).collect();
            prop_assert_eq!(all(&kept), all(&given));
            prop_assert!(events.is_sorted_by(|a, b| a.sequence < b.sequence));
            for event in &kept {
                prop_assert_eq!(bound::event(event).cut, None);
            }
        }
    }
}
