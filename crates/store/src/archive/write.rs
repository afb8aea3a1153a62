//! Writes a batch of records to the database, in one transaction.

use std::collections::HashSet;

use super::pending::{EventRecord, PendingRecord};
use super::sessions::{self, EndedTurn};
use super::statement::Statement;
use crate::columns::WriteColumns;
use crate::error::StoreError;
use crate::run_index::{TurnBegun, TurnContinued, TurnEnded, TurnStarted, TurnWorkspace};
use crate::store::Store;
use crate::transaction::Transaction;

/// Whether the process that made the records also writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordOrigin {
    Live,
    /// They were found in the journal of a process that has ended.
    Recovered,
}

/// The records of a batch by kind, in the order in which a run sends them.
#[derive(Default)]
struct BatchByKind<'a> {
    sessions: Vec<EndedTurn<'a>>,
    begun: Vec<&'a TurnBegun>,
    started: Vec<&'a TurnStarted>,
    continued: Vec<&'a TurnContinued>,
    workspaces: Vec<&'a TurnWorkspace>,
    events: Vec<&'a EventRecord>,
    ended: Vec<&'a TurnEnded>,
}

/// Writes all records of a batch or none, and returns how many rows of the database were changed. The content of a record
/// never makes it fail.
pub(super) async fn write(store: &Store, batch: &[PendingRecord], origin: RecordOrigin) -> Result<u64, StoreError> {
    let mut transaction = store.transaction().await?;
    let kinds = BatchByKind::of(batch);
    // Sessions come first: turns refer to them.
    let mut changed = sessions::write(&mut transaction, &kinds.sessions, origin).await?;
    changed += kinds.write_turns(&mut transaction).await?;
    transaction.commit().await?;
    Ok(changed)
}

impl<'a> BatchByKind<'a> {
    fn of(batch: &'a [PendingRecord]) -> Self {
        let mut kinds = Self::default();
        for record in batch {
            match record {
                PendingRecord::Session { turn, condition } => kinds.sessions.push(EndedTurn { turn, condition }),
                PendingRecord::Begun(begun) => kinds.begun.push(begun),
                PendingRecord::Started(started) => kinds.started.push(started),
                PendingRecord::Continued(continued) => kinds.continued.push(continued),
                PendingRecord::Workspace(left) => kinds.workspaces.push(left),
                PendingRecord::Event(event) => kinds.events.push(event),
                PendingRecord::Ended(ended) => kinds.ended.push(ended),
            }
        }
        kinds
    }

    async fn write_turns(&self, transaction: &mut Transaction) -> Result<u64, StoreError> {
        let insert = Statement::insert::<TurnBegun>("turns", "new", "(run) DO NOTHING");
        let mark_started = Statement::update::<TurnStarted>("turns", "turns.state = 'queued'");
        let set_session = Statement::update::<TurnContinued>("turns", "true");
        let set_workspace = Statement::update::<TurnWorkspace>("turns", "true");
        // Events of a turn that has been deleted are left out.
        let source = "new CROSS JOIN turns ON turns.run = new.turn";
        let add_events = Statement::insert::<EventRecord>("events", source, "(turn, sequence) DO NOTHING");
        let finish = Statement::update::<TurnEnded>("turns", "true");
        Ok(in_order(transaction, &insert, &self.begun, |begun| &begun.run).await?
            + in_order(transaction, &mark_started, &self.started, |started| &started.run).await?
            + in_order(transaction, &set_session, &self.continued, |continued| &continued.run).await?
            + in_order(transaction, &set_workspace, &self.workspaces, |left| &left.run).await?
            + add_events.execute(transaction, &self.events).await?
            + in_order(transaction, &finish, &self.ended, |ended| &ended.run).await?)
    }
}

/// Executes a statement so that the last of several records about the same run wins.
async fn in_order<R: WriteColumns>(
    transaction: &mut Transaction,
    statement: &Statement,
    records: &[&R],
    run: impl for<'r> Fn(&'r R) -> &'r str,
) -> Result<u64, StoreError> {
    let mut changed = 0;
    for part in split_repeats(records, |record| run(record)) {
        changed += statement.execute(transaction, part).await?;
    }
    Ok(changed)
}

/// Splits records where one is about the same subject as an earlier one: within one statement, either might win.
pub(super) fn split_repeats<R>(mut records: &[R], subject: impl for<'r> Fn(&'r R) -> &'r str) -> Vec<&[R]> {
    let mut parts = Vec::new();
    while !records.is_empty() {
        let mut seen = HashSet::new();
        let repeat = records.iter().position(|record| !seen.insert(subject(record)));
        let (part, rest) = records.split_at(repeat.unwrap_or(records.len()));
        parts.push(part);
        records = rest;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_about_the_same_subject_are_split() {
        let parts = split_repeats(&["a", "b", "a", "c", "c"], |subject| subject);
        assert_eq!(parts, [vec!["a", "b"], vec!["a", "c"], vec!["c"]]);
    }
}
