//! Statements that take many records at once: passing a statement to SQLite costs more than most of what it does.
//!
//! A statement binds its records as rows of a table `new`, whose columns come from the record's [`WriteColumns`].

use std::sync::OnceLock;

use sqlx::sqlite::SqliteRow;

use crate::columns::{BoundQuery, Column, WriteColumns};
use crate::error::StoreError;
use crate::transaction::Transaction;

/// Numbers of records that one statement may take. Few of them: each is a statement of its own to SQLite's cache.
const BATCH_SIZES: [usize; 8] = [128, 64, 32, 16, 8, 4, 2, 1];

/// A statement for records of one type. It is a static, so that its text is built once.
pub(super) struct Statement {
    columns: &'static [Column],
    /// SQL that follows the definition of `new`.
    action: String,
    /// The whole text for each of [`BATCH_SIZES`].
    texts: [OnceLock<String>; BATCH_SIZES.len()],
}

impl Statement {
    pub(super) fn new<R: WriteColumns>(action: impl Into<String>) -> Self {
        Self { columns: R::COLUMNS_TO_WRITE, action: action.into(), texts: Default::default() }
    }

    /// Inserts the records that are in `source`: `new`, or a join with it.
    pub(super) fn insert<R: WriteColumns>(table: &str, source: &str, on_conflict: &str) -> Self {
        let names = list(R::COLUMNS_TO_WRITE, |column| column.name.to_owned());
        let values = list(R::COLUMNS_TO_WRITE, |column| column.value.to_owned());
        // Without WHERE, SQLite would read ON as the beginning of a join condition.
        Self::new::<R>(format!(
            "INSERT INTO {table} ({names}) SELECT {values} FROM {source} WHERE true ON CONFLICT {on_conflict}"
        ))
    }

    /// Writes the records.
    pub(super) async fn execute<R: WriteColumns>(
        &'static self,
        transaction: &mut Transaction,
        mut records: &[&R],
    ) -> Result<(), StoreError> {
        while let Some((query, rest)) = self.next_query(records) {
            query.execute(&mut **transaction).await?;
            records = rest;
        }
        Ok(())
    }

    /// Writes the records, and returns what the statement returns.
    pub(super) async fn fetch<R: WriteColumns>(
        &'static self,
        transaction: &mut Transaction,
        mut records: &[&R],
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let mut rows = Vec::new();
        while let Some((query, rest)) = self.next_query(records) {
            rows.extend(query.fetch_all(&mut **transaction).await?);
            records = rest;
        }
        Ok(rows)
    }

    /// Query for as many of the records as one statement takes, and the rest of them.
    fn next_query<'q, R: WriteColumns>(&'static self, records: &'q [&'q R]) -> Option<(BoundQuery<'q>, &'q [&'q R])> {
        let (at, size) = BATCH_SIZES.into_iter().enumerate().find(|(_, size)| *size <= records.len())?;
        let (these, rest) = records.split_at(size);
        let query = sqlx::query(self.texts[at].get_or_init(|| self.text(size)).as_str());
        Some((these.iter().fold(query, |query, record| record.bind(query)), rest))
    }

    fn text(&self, records: usize) -> String {
        let names = list(self.columns, |column| column.name.to_owned());
        let values = format!("({})", vec!["?"; self.columns.len()].join(","));
        let rows = vec![values.as_str(); records].join(",");
        format!("WITH new ({names}) AS (VALUES {rows}) {}", self.action)
    }
}

fn list(columns: &[Column], part: impl Fn(&Column) -> String) -> String {
    columns.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::write_columns;

    struct Pair {
        id: i64,
        name: String,
    }

    write_columns!(Pair, pair =>
        id: pair.id,
        name = "upper(new.name)": &pair.name,
    );

    #[test]
    fn each_record_has_a_place_for_each_of_its_columns() {
        let insert = Statement::insert::<Pair>("pairs", "new", "DO NOTHING");
        assert_eq!(
            insert.text(2),
            "WITH new (id, name) AS (VALUES (?,?),(?,?)) \
             INSERT INTO pairs (id, name) SELECT new.id, upper(new.name) FROM new WHERE true ON CONFLICT DO NOTHING"
        );
    }
}
