//! Puts records into the database, those of a kind together: to hand a statement over costs more than most of what it does.

use std::collections::HashSet;

use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

use super::row::Row;
use super::sessions;
use crate::error::StoreError;
use crate::run::{LogState, RunState, receipt_json};
use crate::store::Store;
use crate::time::millis_of;
use crate::transaction::Transaction;

/// How many records one statement takes. Few sizes: each is a statement of its own to SQLite.
const SIZES: [usize; 8] = [128, 64, 32, 16, 8, 4, 2, 1];

/// A statement for several records of a kind.
pub(super) struct Statement {
    pub(super) before: &'static str,
    /// How many values a record has.
    pub(super) columns: usize,
    pub(super) after: &'static str,
}

/// Whether what is written is said just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    New,
    /// A process that has ended left it.
    Left,
}

/// A session that has been deleted meanwhile, or is another owner's, is none.
const BEGUN: Statement = Statement {
    before: "INSERT INTO turns (run, session, owner, surface, place, model, prompt, begun, gateway, detached, state)
         SELECT column1, (SELECT id FROM sessions WHERE id = column2 AND owner = column3), column3, column4, column5,
         column6, column7, column8, column9, column10, column11 FROM (VALUES ",
    columns: 11,
    after: ") WHERE true ON CONFLICT (run) DO NOTHING",
};

const STARTED: Statement = Statement {
    before: "UPDATE turns SET state = new.column2, provider = new.column3, started = new.column4 FROM (VALUES ",
    columns: 5,
    after: ") AS new WHERE turns.run = new.column1 AND turns.state = new.column5",
};

const GOES_ON: Statement = Statement {
    before: "UPDATE turns SET prompt = new.column3,
         session = (SELECT id FROM sessions WHERE id = new.column2 AND owner = turns.owner) FROM (VALUES ",
    columns: 3,
    after: ") AS new WHERE turns.run = new.column1",
};

const WORKSPACE: Statement = Statement {
    before: "UPDATE turns SET workspace = new.column2 FROM (VALUES ",
    columns: 2,
    after: ") AS new WHERE turns.run = new.column1",
};

/// What belongs to a turn that has been deleted is left out.
const EVENT: Statement = Statement {
    before: "INSERT INTO events (turn, sequence, event, cut) SELECT turns.id, column2, column3, column4 FROM (VALUES ",
    columns: 4,
    after: ") CROSS JOIN turns ON turns.run = column1 WHERE true ON CONFLICT (turn, sequence) DO NOTHING",
};

const ENDED: Statement = Statement {
    before: "UPDATE turns SET provider = new.column3, outcome = new.column4,
         session = coalesce((SELECT id FROM sessions WHERE id = new.column2 AND owner = turns.owner), turns.session),
         answer = new.column5, input_tokens = new.column6, output_tokens = new.column7, cached_tokens = new.column8,
         estimated = new.column9, duration = new.column10, state = new.column11, ended = new.column12,
         attempts = new.column13, log = new.column14 FROM (VALUES ",
    columns: 14,
    after: ") AS new WHERE turns.run = new.column1",
};

/// In the order in which they come in the life of a run. What became of sessions goes before: turns belong to them.
const KINDS: [Statement; 6] = [BEGUN, STARTED, GOES_ON, WORKSPACE, EVENT, ENDED];

/// All of them or none; how many rows of the database are others now. Nothing here fails because of what it is given.
pub(super) async fn write(store: &Store, batch: &[Row], age: Age) -> Result<u64, StoreError> {
    let mut transaction = store.transaction().await?;
    let of_kind = |kind| batch.iter().filter(|row| kind_of(row) == kind).collect::<Vec<&Row>>();
    let mut changed = sessions::write(&mut transaction, &of_kind(None), age).await?;
    for (kind, statement) in KINDS.iter().enumerate() {
        for rows in apart(&of_kind(Some(kind))) {
            changed += statement.execute(&mut transaction, rows, |query, row| bind(query, row)).await?;
        }
    }
    transaction.commit().await?;
    Ok(changed)
}

/// Where a kind says something of the same twice, the second is said after the first: one statement would take either.
pub(super) fn apart<'a, 'b>(mut rows: &'b [&'a Row]) -> Vec<&'b [&'a Row]> {
    let mut parts = Vec::new();
    while !rows.is_empty() {
        let mut seen = HashSet::new();
        let again = rows.iter().position(|row| !matches!(row, Row::Event { .. }) && !seen.insert(row.subject()));
        let (part, rest) = rows.split_at(again.unwrap_or(rows.len()));
        parts.push(part);
        rows = rest;
    }
    parts
}

impl Statement {
    /// How many rows of the database are others now.
    pub(super) async fn execute<'a, R>(
        &self,
        transaction: &mut Transaction,
        mut rows: &[R],
        bind: impl Fn(Filling<'a>, &R) -> Filling<'a>,
    ) -> Result<u64, StoreError> {
        let mut changed = 0;
        while !rows.is_empty() {
            let size = SIZES.into_iter().find(|size| *size <= rows.len()).unwrap_or(1);
            let (these, rest) = rows.split_at(size);
            // Ours from the first character to the last; what others say is bound.
            let query = sqlx::query(sqlx::AssertSqlSafe(self.text(size)));
            let query = these.iter().fold(query, &bind);
            changed += query.execute(&mut **transaction).await?.rows_affected();
            rows = rest;
        }
        Ok(changed)
    }

    fn text(&self, rows: usize) -> String {
        let values = format!("({})", vec!["?"; self.columns].join(","));
        [self.before, &vec![values.as_str(); rows].join(","), self.after].concat()
    }
}

/// Its place in [`KINDS`]; none of what is no record of a run.
fn kind_of(row: &Row) -> Option<usize> {
    match row {
        Row::Session { .. } => None,
        Row::Begun(_) => Some(0),
        Row::Started { .. } => Some(1),
        Row::GoesOn { .. } => Some(2),
        Row::Workspace { .. } => Some(3),
        Row::Event { .. } => Some(4),
        Row::Ended(_) => Some(5),
    }
}

pub(super) type Filling<'a> = Query<'a, Sqlite, SqliteArguments>;

fn bind<'a>(query: Filling<'a>, row: &'a Row) -> Filling<'a> {
    match row {
        Row::Session { .. } => query,
        Row::Begun(begun) => query
            .bind(&begun.run)
            .bind(begun.session.as_ref().map(|session| session.0.as_str()))
            .bind(begun.owner.as_str())
            .bind(begun.surface.name())
            .bind(&begun.place)
            .bind(&begun.model)
            .bind(&begun.prompt)
            .bind(begun.time.millis())
            .bind(&begun.gateway)
            .bind(begun.detached)
            .bind(RunState::Queued.name()),
        Row::Started { run, provider, time } => query
            .bind(run)
            .bind(RunState::Running.name())
            .bind(provider)
            .bind(time.millis())
            .bind(RunState::Queued.name()),
        Row::GoesOn { run, session, prompt } => query.bind(run).bind(&session.0).bind(prompt),
        Row::Workspace { run, receipt } => query.bind(run).bind(receipt_json(receipt)),
        Row::Event { run, sequence, event } => {
            query.bind(run).bind(number(*sequence)).bind(&event.json).bind(event.cut.map(|size| number(size as u64)))
        }
        Row::Ended(ended) => query
            .bind(&ended.run)
            .bind(ended.session.as_ref().map(|session| session.0.as_str()))
            .bind(&ended.provider)
            .bind(ended.outcome.name())
            .bind(&ended.answer)
            .bind(number(ended.usage.input_tokens))
            .bind(number(ended.usage.output_tokens))
            .bind(number(ended.usage.cached_tokens))
            .bind(ended.usage.estimated)
            .bind(millis_of(ended.duration))
            .bind(RunState::of(ended.outcome).name())
            .bind(ended.time.millis())
            .bind(ended.attempts)
            .bind(ended.log.map(LogState::name)),
    }
}

pub(super) fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

    fn started(run: &str) -> Row {
        Row::Started { run: run.into(), provider: "p".into(), time: Time::now() }
    }

    #[test]
    fn what_is_said_twice_is_said_in_turn() {
        let rows = ["a", "b", "a", "c", "c"].map(started);
        let rows: Vec<&Row> = rows.iter().collect();
        let parts: Vec<Vec<&str>> =
            apart(&rows).iter().map(|part| part.iter().map(|row| row.subject()).collect()).collect();
        assert_eq!(parts, [vec!["a", "b"], vec!["a", "c"], vec!["c"]]);
    }

    #[test]
    fn every_value_has_its_place() {
        let two = WORKSPACE.text(2);
        assert!(two.contains("FROM (VALUES (?,?),(?,?)) AS new"), "{two}");
    }
}
