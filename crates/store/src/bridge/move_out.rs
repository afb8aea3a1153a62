//! Moves the state of bridges out of a database of version 3 or earlier, which had it next to the index.
//!
//! The rows are on disk in the other file before the migration drops them. If the process is killed in between, the next
//! one copies the rows again, which changes nothing: a bridge cannot have used the other file before the migration.

use std::fs::File;
use std::path::Path;

use sqlx::sqlite::SqliteSynchronous;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::error::StoreError;
use crate::opening;
use crate::schema::{BRIDGE_FILE, Schema};

/// A query for all rows of a table as JSON, and the statement that inserts them.
const TABLES: [(&str, &str); 3] = [
    (
        "SELECT json_group_array(json_array(place, message, changed)) FROM cursors",
        "INSERT OR IGNORE INTO cursors (place, message, changed)
         SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1)",
    ),
    (
        "SELECT json_group_array(json_array(message, place, payload, state, detail, received, changed)) FROM inbox",
        "INSERT OR IGNORE INTO inbox (message, place, payload, state, detail, received, changed)
         SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6
         FROM json_each(?1)",
    ),
    (
        "SELECT json_group_array(json_array(place, session, model, more, changed)) FROM bindings",
        "INSERT OR IGNORE INTO bindings (place, session, model, more, changed)
         SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?1)",
    ),
];

/// Result of a query in [`TABLES`] for an empty table.
const NO_ROWS: &str = "[]";

/// Copies the rows to the file of bridges, which is created if there are any. `index` is in the transaction that drops them.
pub(crate) async fn copy_to_own_file(index: &mut SqliteConnection, state: &Path) -> Result<(), StoreError> {
    let mut copied = Vec::new();
    for (select, insert) in TABLES {
        let rows: String = sqlx::query_scalar(select).fetch_one(&mut *index).await?;
        if rows != NO_ROWS {
            copied.push((insert, rows));
        }
    }
    if copied.is_empty() {
        return Ok(());
    }
    let path = state.join(BRIDGE_FILE);
    // The index is being prepared by the same function.
    Box::pin(opening::prepare(&path, Schema::Bridge)).await?;
    // The rows must survive a power failure, as the transaction that drops them may.
    let options = opening::options().filename(&path).synchronous(SqliteSynchronous::Full);
    let mut connection = options.connect().await?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    for (insert, rows) in copied {
        sqlx::query(insert).bind(rows).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    connection.close().await?;
    let synced = File::open(state).and_then(|folder| folder.sync_all());
    synced.map_err(|source| StoreError::Open { path: state.to_owned(), source })
}
