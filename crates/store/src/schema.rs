//! Tables and migrations.
//!
//! The version is SQLite's `user_version`, read and set in the transaction that makes the change: however many processes
//! start at once, each migration runs once. A migration that has been released is never edited, except for comments
//! outside of its statements.

use sqlx::{Connection, SqliteConnection};

/// The migrations in order: the first makes version 1. One of a few lines, such as a new column, is written here as a
/// string; a longer one has a file.
const MIGRATIONS: [&str; 2] =
    [include_str!("../migrations/0001_first.sql"), include_str!("../migrations/0002_runs.sql")];

/// The version that this program works with.
pub(crate) const KNOWN_VERSION: i64 = MIGRATIONS.len() as i64;

/// The version of a database that is newer than [`KNOWN_VERSION`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewerSchema(pub(crate) i64);

/// Migrates a database to [`KNOWN_VERSION`].
pub(crate) async fn migrate(connection: &mut SqliteConnection) -> sqlx::Result<Result<(), NewerSchema>> {
    // Usually there is nothing to do, and no reason to wait for the write lock.
    match version(connection).await? {
        KNOWN_VERSION => return Ok(Ok(())),
        found if found > KNOWN_VERSION => return Ok(Err(NewerSchema(found))),
        _ => {}
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let found = version(&mut transaction).await?;
    let done = usize::try_from(found).unwrap_or(0);
    for migration in MIGRATIONS.iter().skip(done) {
        sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
    }
    // A pragma takes no parameters. The number is a constant.
    let set_version = sqlx::AssertSqlSafe(format!("PRAGMA user_version = {KNOWN_VERSION}"));
    sqlx::raw_sql(set_version).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(Ok(()))
}

pub(crate) async fn version(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar("PRAGMA user_version").fetch_one(connection).await
}
