//! Writes a batch of records to the database, in one transaction.

use std::collections::HashSet;

use super::row::{EventRecord, Row};
use super::sessions::{self, EndedTurn};
use super::statement::Statement;
use crate::columns::WriteColumns;
use crate::error::StoreError;
use crate::run_index::{TurnBegun, TurnContinued, TurnEnded, TurnStarted, TurnWorkspace};
use crate::store::Store;
use crate::transaction::Transaction;

/// Whether records are written by the process that made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    New,
    /// They are from the journal of a process that has ended.
    Left,
}

/// The records of a batch by kind, in the order in which a run sends them.
#[derive(Default)]
struct Kinds<'a> {
    sessions: Vec<EndedTurn<'a>>,
    begun: Vec<&'a TurnBegun>,
    started: Vec<&'a TurnStarted>,
    continued: Vec<&'a TurnContinued>,
    workspaces: Vec<&'a TurnWorkspace>,
    events: Vec<&'a EventRecord>,
    ended: Vec<&'a TurnEnded>,
}

/// Writes all records of a batch or none, and returns how many rows of the database were changed. Never fails because of
/// what a record holds.
pub(super) async fn write(store: &Store, batch: &[Row], age: Age) -> Result<u64, StoreError> {
    let mut transaction = store.transaction().await?;
    let kinds = Kinds::of(batch);
    // Sessions come first: turns refer to them.
    let mut changed = sessions::write(&mut transaction, &kinds.sessions, age).await?;
    changed += kinds.write_turns(&mut transaction).await?;
    transaction.commit().await?;
    Ok(changed)
}

impl<'a> Kinds<'a> {
    fn of(batch: &'a [Row]) -> Self {
        let mut kinds = Self::default();
        for row in batch {
            match row {
                Row::Session { turn, leads } => kinds.sessions.push(EndedTurn { turn, leads }),
                Row::Begun(begun) => kinds.begun.push(begun),
                Row::Started(started) => kinds.started.push(started),
                Row::GoesOn(continued) => kinds.continued.push(continued),
                Row::Workspace(left) => kinds.workspaces.push(left),
                Row::Event(record) => kinds.events.push(record),
                Row::Ended(ended) => kinds.ended.push(ended),
            }
        }
        kinds
    }

    async fn write_turns(&self, transaction: &mut Transaction) -> Result<u64, StoreError> {
        let begin = Statement::insert::<TurnBegun>("turns", "new", "(run) DO NOTHING");
        let start = Statement::update::<TurnStarted>("turns", "turns.state = 'queued'");
        let go_on = Statement::update::<TurnContinued>("turns", "true");
        let leave = Statement::update::<TurnWorkspace>("turns", "true");
        // Events of a turn that has been deleted are left out.
        let source = "new CROSS JOIN turns ON turns.run = new.turn";
        let event = Statement::insert::<EventRecord>("events", source, "(turn, sequence) DO NOTHING");
        let end = Statement::update::<TurnEnded>("turns", "true");
        Ok(in_order(transaction, &begin, &self.begun, |begun| &begun.run).await?
            + in_order(transaction, &start, &self.started, |started| &started.run).await?
            + in_order(transaction, &go_on, &self.continued, |continued| &continued.run).await?
            + in_order(transaction, &leave, &self.workspaces, |left| &left.run).await?
            + event.execute(transaction, &self.events).await?
            + in_order(transaction, &end, &self.ended, |ended| &ended.run).await?)
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
