//! Tables and migrations.
//!
//! The version is SQLite's `user_version`, read and set in the transaction that makes the change: however many processes
//! start at once, each migration runs once. A migration that has been released is never edited, except for comments
//! outside of its statements.

use std::path::Path;

use sqlx::{Connection, SqliteConnection};

use crate::error::StoreError;
use crate::upgrade::{Upgraded, upgrade};

/// The migrations in order: the first makes version 1. One of a few lines, such as a new column, is written here as a
/// string; a longer one has a file.
const MIGRATIONS: [&str; 3] = [
    include_str!("../migrations/0001_first.sql"),
    include_str!("../migrations/0002_runs.sql"),
    include_str!("../migrations/0003_index.sql"),
];

/// The version that this program works with.
pub(crate) const KNOWN_VERSION: i64 = MIGRATIONS.len() as i64;

/// The version of a database that is newer than [`KNOWN_VERSION`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewerSchema(pub(crate) i64);

/// The last version whose database was the record of runs.
const LAST_WITHOUT_LOG: i64 = 2;

/// Migrates a database to [`KNOWN_VERSION`]. `state` is the folder of its log; a database in memory has none.
pub(crate) async fn migrate(
    connection: &mut SqliteConnection,
    state: Option<&Path>,
) -> Result<Result<(), NewerSchema>, StoreError> {
    // Usually there is nothing to do, and no reason to wait for the write lock.
    match version(connection).await? {
        KNOWN_VERSION => return Ok(Ok(())),
        found if found > KNOWN_VERSION => return Ok(Err(NewerSchema(found))),
        _ => {}
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let found = version(&mut transaction).await?;
    let mut upgraded = None;
    for (before, migration) in (0..).zip(MIGRATIONS).skip(usize::try_from(found).unwrap_or(0)) {
        if let (LAST_WITHOUT_LOG, true, Some(state)) = (before, found > 0, state) {
            upgraded = Some(upgrade(&mut transaction, state).await?);
        }
        sqlx::raw_sql(migration).execute(&mut *transaction).await?;
    }
    // A pragma takes no parameters. The number is a constant.
    let set_version = sqlx::AssertSqlSafe(format!("PRAGMA user_version = {KNOWN_VERSION}"));
    sqlx::raw_sql(set_version).execute(&mut *transaction).await?;
    transaction.commit().await?;
    if let Some(Upgraded { runs, sessions }) = upgraded {
        tracing::info!("upgraded the store: {runs} runs, {sessions} sessions");
    }
    Ok(Ok(()))
}

pub(crate) async fn version(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar("PRAGMA user_version").fetch_one(connection).await
}
