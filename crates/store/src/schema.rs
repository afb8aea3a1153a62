//! The tables, and how an older database comes to have them.
//!
//! The version is SQLite's own `user_version`, read and raised in the transaction that makes the change: however many
//! processes start at once, each step is taken once. A step that has been released is never edited.

use sqlx::{Connection, SqliteConnection};

/// The migrations in order: the first makes version 1. One of a few lines, such as a new column, is written here as a
/// string; a longer one has a file.
const MIGRATIONS: [&str; 2] =
    [include_str!("../migrations/0001_first.sql"), include_str!("../migrations/0002_runs.sql")];

/// The version this program works with.
pub(crate) const KNOWN: i64 = MIGRATIONS.len() as i64;

/// What was found, if it is newer than [`KNOWN`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Newer(pub(crate) i64);

/// Brings a database up to [`KNOWN`].
pub(crate) async fn migrate(connection: &mut SqliteConnection) -> sqlx::Result<Result<(), Newer>> {
    // Mostly there is nothing to do, and no reason to wait for whoever writes just now.
    match version(connection).await? {
        KNOWN => return Ok(Ok(())),
        found if found > KNOWN => return Ok(Err(Newer(found))),
        _ => {}
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let found = version(&mut transaction).await?;
    let done = usize::try_from(found).unwrap_or(0);
    for step in MIGRATIONS.iter().skip(done) {
        sqlx::raw_sql(*step).execute(&mut *transaction).await?;
    }
    // A pragma takes no parameters; this is a number of ours.
    let raise = sqlx::AssertSqlSafe(format!("PRAGMA user_version = {KNOWN}"));
    sqlx::raw_sql(raise).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(Ok(()))
}

pub(crate) async fn version(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar("PRAGMA user_version").fetch_one(connection).await
}
