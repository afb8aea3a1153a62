//! Statements that take many records at once: passing a statement to SQLite costs more than most of what it does.
//!
//! A statement binds its records as rows of a table `new`, whose columns come from the record's [`WriteColumns`].

use crate::columns::{Column, WriteColumns};
use crate::error::StoreError;
use crate::transaction::Transaction;

/// Numbers of records that one statement may take. Few of them: each is a statement of its own to SQLite's cache.
const BATCH_SIZES: [usize; 8] = [128, 64, 32, 16, 8, 4, 2, 1];

/// A statement for records of one type.
pub(super) struct Statement {
    columns: &'static [Column],
    /// SQL that follows the definition of `new`.
    action: String,
}

impl Statement {
    pub(super) fn new<R: WriteColumns>(action: impl Into<String>) -> Self {
        Self { columns: R::COLUMNS_TO_WRITE, action: action.into() }
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

    /// Returns how many rows of the database were changed.
    pub(super) async fn execute<R: WriteColumns>(
        &self,
        transaction: &mut Transaction,
        mut records: &[&R],
    ) -> Result<u64, StoreError> {
        let mut changed = 0;
        while !records.is_empty() {
            let size = BATCH_SIZES.into_iter().find(|size| *size <= records.len()).unwrap_or(1);
            let (these, rest) = records.split_at(size);
            // Safe: the text consists of constants, and all data is bound.
            let query = sqlx::query(sqlx::AssertSqlSafe(self.text(size)));
            let query = these.iter().fold(query, |query, record| record.bind(query));
            changed += query.execute(&mut **transaction).await?.rows_affected();
            records = rest;
        }
        Ok(changed)
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
