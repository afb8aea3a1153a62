//! Tables and migrations.
//!
//! The version is SQLite's `user_version`, read and set in the transaction that makes the change: however many processes
//! start at once, each migration runs once. A migration that has been released is never edited, except for comments
//! outside of its statements.

use std::path::Path;

use sqlx::{Connection, SqliteConnection};

use crate::bridge::copy_to_own_file;
use crate::error::StoreError;
use crate::upgrade::{Upgraded, upgrade};

/// Name of the file with the state of bridges in the state folder.
pub const BRIDGE_FILE: &str = "bridge.db";

/// The tables of a database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    /// The index of the log.
    Index,
    /// State of bridges.
    Bridge,
}

/// The migrations of the index in order: the first makes version 1. One of a few lines, such as a new column, is written
/// here as a string; a longer one has a file.
const INDEX_MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_first.sql"),
    include_str!("../migrations/0002_runs.sql"),
    include_str!("../migrations/0003_index.sql"),
    "DROP TABLE cursors; DROP TABLE inbox; DROP TABLE bindings;",
    "ALTER TABLE turns ADD COLUMN side TEXT;",
];

const BRIDGE_MIGRATIONS: &[&str] = &[include_str!("../migrations/bridge_0001.sql")];

/// The last version whose database was the record of runs.
const LAST_WITHOUT_LOG: i64 = 2;

/// The last version whose database had the state of bridges.
const LAST_WITH_BRIDGE: i64 = 3;

/// The version of a database that is newer than [`Schema::known_version`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewerSchema(pub(crate) i64);

impl Schema {
    /// The tables of the file with this path.
    pub(crate) fn of_file(path: &Path) -> Self {
        if path.file_name().is_some_and(|name| name == BRIDGE_FILE) { Self::Bridge } else { Self::Index }
    }

    const fn migrations(self) -> &'static [&'static str] {
        match self {
            Self::Index => INDEX_MIGRATIONS,
            Self::Bridge => BRIDGE_MIGRATIONS,
        }
    }

    /// The version that this program works with.
    pub(crate) const fn known_version(self) -> i64 {
        self.migrations().len() as i64
    }

    /// Migrates a database to [`known_version`](Self::known_version). `state` is the state folder; a database in memory has
    /// none.
    pub(crate) async fn migrate(
        self,
        connection: &mut SqliteConnection,
        state: Option<&Path>,
    ) -> Result<Result<(), NewerSchema>, StoreError> {
        let known = self.known_version();
        // Usually there is nothing to do, and no reason to wait for the write lock.
        match version(connection).await? {
            found if found == known => return Ok(Ok(())),
            found if found > known => return Ok(Err(NewerSchema(found))),
            _ => {}
        }
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let found = version(&mut transaction).await?;
        let mut upgraded = None;
        for (before, migration) in (0..).zip(self.migrations()).skip(usize::try_from(found).unwrap_or(0)) {
            if let (Self::Index, true, Some(state)) = (self, found > 0, state) {
                match before {
                    LAST_WITHOUT_LOG => upgraded = Some(upgrade(&mut transaction, state).await?),
                    LAST_WITH_BRIDGE => copy_to_own_file(&mut transaction, state).await?,
                    _ => {}
                }
            }
            sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
        }
        // A pragma takes no parameters. The number is a constant.
        let set_version = sqlx::AssertSqlSafe(format!("PRAGMA user_version = {known}"));
        sqlx::raw_sql(set_version).execute(&mut *transaction).await?;
        transaction.commit().await?;
        if let Some(Upgraded { runs, sessions }) = upgraded {
            tracing::info!("upgraded the store: {runs} runs, {sessions} sessions");
        }
        Ok(Ok(()))
    }
}

pub(crate) async fn version(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar("PRAGMA user_version").fetch_one(connection).await
}
