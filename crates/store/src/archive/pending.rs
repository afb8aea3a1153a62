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
    use serde_json::{Value, json};

    use super::*;

    /// Records as the first version of the journal has them. Fields that were added later may be missing.
    #[test]
    fn journal_of_an_older_version_is_read() {
        let usage = json!({"input_tokens": 3, "output_tokens": 2, "cached_tokens": 1, "estimated": true});
        let hash = [1; 32];
        let records = [
            json!({"Begun": {
                "run": "r", "session": "s", "owner": "local", "surface": "discord", "place": "/repo", "model": "m",
                "prompt": "p", "time": 7, "gateway": "g", "detached": true,
            }}),
            json!({"Started": {"run": "r", "provider": "p", "time": 7}}),
            json!({"GoesOn": {"run": "r", "session": "s", "prompt": "p"}}),
            json!({"Workspace": {"run": "r", "receipt": {"base": "b"}}}),
            json!({"Ended": {
                "run": "r", "provider": "p", "outcome": "timeout", "answer": "a", "usage": usage,
                "duration": {"secs": 1, "nanos": 2}, "session": null, "time": 7, "attempts": 2, "log": "complete",
            }}),
            json!({"Session": {"turn": {
                "id": "r", "owner": "local", "model": "m", "provider": "p", "repo": "/repo", "begins": "b", "native": "n",
                "succeeded": true, "asked": "m", "chains": [[hash, 2]], "time": 7,
            }}}),
        ];
        for old in records {
            let record: PendingRecord = serde_json::from_value(old.clone()).unwrap();
            assert_eq!(record.subject(), "r");
            let new = serde_json::to_value(&record).unwrap();
            assert!(includes(&new, &old), "{old} was read as {new}");
        }
    }

    fn includes(whole: &Value, part: &Value) -> bool {
        match (whole, part) {
            (Value::Object(whole), Value::Object(part)) => {
                part.iter().all(|(name, part)| whole.get(name).is_some_and(|whole| includes(whole, part)))
            }
            _ => whole == part,
        }
    }
}
