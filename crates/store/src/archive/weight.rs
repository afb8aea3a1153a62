//! What a record weighs while it waits: about as many bytes as it takes in memory.

use trunkline_core::event::Event;

use super::bound;
use super::record::Record;
use crate::session_turn::SessionTurn;

/// What every record weighs besides its texts.
const ALONE: usize = 1024;

pub(super) fn of(record: &Record) -> u32 {
    let text = |text: &str| text.len().min(bound::TEXT);
    weight(match record {
        Record::Begun(begun) => text(&begun.prompt),
        Record::GoesOn { prompt, .. } => text(prompt),
        Record::Ended(ended) => text(&ended.answer),
        Record::Started { .. } | Record::Workspace { .. } => 0,
        Record::Event { event, .. } => of_event(event).min(bound::EVENT),
    })
}

pub(super) fn of_session(turn: &SessionTurn) -> u32 {
    weight(turn.chains.len() * 64)
}

fn of_event(event: &Event) -> usize {
    match event {
        Event::Text { delta: text }
        | Event::Thinking { delta: text }
        | Event::ToolCall { arguments: text, .. }
        | Event::ToolFinished { output: text, .. }
        | Event::Notice { message: text }
        | Event::Unknown { line: text } => text.len(),
        // It holds a value of any depth.
        Event::ToolStarted { .. } => bound::EVENT / 8,
        Event::Started { .. } | Event::Workspace(_) | Event::Attempted(_) | Event::Finished(_) | Event::Failed(_) => 0,
    }
}

fn weight(texts: usize) -> u32 {
    u32::try_from(ALONE + texts).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_weighs_as_much_as_is_kept_of_it() {
        let event = |length: usize| Record::Event {
            run: "r".into(),
            sequence: 0,
            event: Event::Text { delta: "x".repeat(length) },
        };
        for (length, expected) in [(0, 1024), (1000, 2024), (10_000_000, 1024 + 64 * 1024)] {
            assert_eq!(of(&event(length)), expected, "{length}");
        }
    }
}
