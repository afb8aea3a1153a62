//! Weight of a queued record: roughly the bytes that it takes in memory.

use trunkline_core::event::Event;

use super::bound;
use super::record::ArchiveRecord;
use crate::session_turn::SessionTurn;

/// Weight of a record without its texts.
const BASE_BYTES: usize = 1024;

pub(super) fn of(record: &ArchiveRecord) -> u32 {
    let text = |text: &str| text.len().min(bound::MAX_TEXT_BYTES);
    weight(match record {
        ArchiveRecord::Begun(begun) => text(&begun.prompt),
        ArchiveRecord::GoesOn { prompt, .. } => text(prompt),
        ArchiveRecord::Ended(ended) => text(&ended.answer),
        ArchiveRecord::Started { .. } | ArchiveRecord::Workspace { .. } => 0,
        ArchiveRecord::Event { event, .. } => of_event(event).min(bound::MAX_EVENT_BYTES),
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
        // Its input is JSON of any depth, too expensive to measure.
        Event::ToolStarted { .. } => bound::MAX_EVENT_BYTES / 8,
        Event::Started { .. } | Event::Workspace(_) | Event::Attempted(_) | Event::Finished(_) | Event::Failed(_) => 0,
    }
}

fn weight(texts: usize) -> u32 {
    u32::try_from(BASE_BYTES + texts).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_weighs_as_much_as_is_stored_of_it() {
        let event = |length: usize| ArchiveRecord::Event {
            run: "r".into(),
            sequence: 0,
            event: Event::Text { delta: "x".repeat(length) },
        };
        for (length, expected) in [(0, 1024), (1000, 2024), (10_000_000, 1024 + 64 * 1024)] {
            assert_eq!(of(&event(length)), expected, "{length}");
        }
    }
}
