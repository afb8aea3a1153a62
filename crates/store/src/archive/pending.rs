//! A record as it is queued, written to the journal, and written to the database.

use serde::{Deserialize, Serialize};

use super::bound::BoundedEvent;
use crate::columns::write_columns;
use crate::run_index::{TurnBegun, TurnContinued, TurnEnded, TurnStarted, TurnWorkspace, number};
use crate::session_turn::{ChainCondition, SessionTurn};

/// A record whose texts are bounded, and whose text deltas are merged.
///
/// The journal holds these as JSON. Names of variants and fields are its format, which a later version has to read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum PendingRecord {
    Session {
        turn: SessionTurn,
        /// Only the process that made the record can evaluate it.
        #[serde(skip)]
        condition: ChainCondition,
    },
    Begun(TurnBegun),
    Started(TurnStarted),
    #[serde(rename = "GoesOn")]
    Continued(TurnContinued),
    Workspace(TurnWorkspace),
    /// Not in the journal: the run's log has it.
    #[serde(skip)]
    Event(EventRecord),
    Ended(TurnEnded),
}

/// An event of a run, for the table `events`.
#[derive(Debug)]
pub(super) struct EventRecord {
    pub(super) run: String,
    pub(super) sequence: u64,
    pub(super) event: BoundedEvent,
}

write_columns!(EventRecord, record =>
    turn = "turns.id": &record.run,
    sequence: number(record.sequence),
    event: &record.event.json,
    cut: record.event.cut.map(|size| number(size as u64)),
);

impl PendingRecord {
    /// The name of the session or run that the record is about.
    pub(super) fn subject(&self) -> &str {
        match self {
            Self::Session { turn, .. } => &turn.id.0,
            Self::Begun(begun) => &begun.run,
            Self::Started(started) => &started.run,
            Self::Continued(continued) => &continued.run,
            Self::Workspace(left) => &left.run,
            Self::Event(record) => &record.run,
            Self::Ended(ended) => &ended.run,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trunkline_core::event::Receipt;

    use super::*;
    use crate::session::{ClientId, SessionKey};
    use crate::time::Time;

    /// Journals of older versions have to be read.
    #[test]
    fn journal_format_is_unchanged() {
        let (run, time) = (|| "r".to_owned(), Time::from_millis(7));
        let begun = TurnBegun { run: run(), owner: ClientId::local(), time, ..TurnBegun::default() };
        let ended = TurnEnded { run: run(), time, ..TurnEnded::default() };
        let receipt = Receipt { base: "b".into(), ..Receipt::default() };
        let receipt_json = serde_json::to_value(&receipt).unwrap();
        let usage = json!({"input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "estimated": false});
        let (session, prompt) = (SessionKey("s".into()), "p".to_owned());
        let cases = [
            (
                PendingRecord::Started(TurnStarted { run: run(), provider: "p".into(), time }),
                json!({"Started": {
                    "run": "r", "provider": "p", "time": 7,
                }}),
            ),
            (
                PendingRecord::Continued(TurnContinued { run: run(), session, prompt }),
                json!({"GoesOn": {
                    "run": "r", "session": "s", "prompt": "p",
                }}),
            ),
            (
                PendingRecord::Workspace(TurnWorkspace { run: run(), receipt }),
                json!({"Workspace": {
                    "run": "r", "receipt": receipt_json,
                }}),
            ),
            (
                PendingRecord::Begun(begun),
                json!({"Begun": {
                    "run": "r", "session": null, "owner": "local", "surface": "http", "place": "", "model": "",
                    "prompt": "", "time": 7, "gateway": "", "detached": false,
                }}),
            ),
            (
                PendingRecord::Ended(ended),
                json!({"Ended": {
                    "run": "r", "provider": "", "outcome": "ok", "answer": "", "usage": usage,
                    "duration": {"secs": 0, "nanos": 0}, "session": null, "time": 7, "attempts": 0, "log": null,
                }}),
            ),
        ];
        for (record, expected) in cases {
            assert_eq!(serde_json::to_value(&record).unwrap(), expected);
            let read: PendingRecord = serde_json::from_value(expected).unwrap();
            assert_eq!(read.subject(), "r");
        }
    }
}
