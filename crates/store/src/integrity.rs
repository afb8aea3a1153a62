//! Integrity checks of a database.

use sqlx::Row;
use sqlx::sqlite::{SqliteExecutor, SqliteRow};

use crate::error::StoreError;

/// Lists the damage of the file's pages, in SQLite's words. Reads all of it.
pub(crate) async fn damage<'a>(connection: impl SqliteExecutor<'a>) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar("PRAGMA integrity_check(20)").fetch_all(connection).await;
    let mut damage: Vec<String> = rows.map_err(StoreError::from).or_else(|error| {
        if matches!(error, StoreError::Broken(_)) { Ok(vec![error.to_string()]) } else { Err(error) }
    })?;
    damage.retain(|row| row != "ok");
    Ok(damage)
}

/// Lists the rows that refer to a row that does not exist.
pub(crate) async fn foreign_key_violations<'a>(connection: impl SqliteExecutor<'a>) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query("PRAGMA foreign_key_check").fetch_all(connection).await?;
    let describe = |row: SqliteRow| {
        let (table, parent): (String, String) = (row.try_get(0)?, row.try_get(2)?);
        Ok(format!("a row of {table} belongs to a row of {parent} that does not exist"))
    };
    rows.into_iter().map(describe).collect()
}
