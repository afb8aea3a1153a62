//! Prepares a database file: creates it if it is missing, migrates it, and refuses it if it is damaged or not writable.
//!
//! A lock file makes sure that one process at a time does this: SQLite does not wait for a lock while it changes the
//! journal mode.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};

use crate::error::StoreError;
use crate::schema::{NewerSchema, Schema};

/// Time that SQLite waits for the transaction of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of every connection. Statements are not logged: they contain prompts and answers.
pub(crate) fn options() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .synchronous(SqliteSynchronous::Normal)
        // Deleted content is overwritten, not only unlinked.
        .pragma("secure_delete", "on")
        // The statement journal would otherwise be a temporary file, created and removed for each statement.
        .pragma("temp_store", "memory")
        .disable_statement_logging()
}

/// Makes sure that there is an intact database of the known version at `path`.
pub(crate) async fn prepare(path: &Path, schema: Schema) -> Result<(), StoreError> {
    let cannot = |source| StoreError::Open { path: path.to_owned(), source };
    let lock_file = with_suffix(path, "-lock");
    // Another process may hold the lock for long, so the wait must not block a thread of the runtime.
    let locked = tokio::task::spawn_blocking(move || lock(&lock_file)).await;
    let _lock = locked.map_err(io::Error::other).flatten().map_err(cannot)?;
    create(path).map_err(cannot)?;
    let mark = suspect_mark(path);
    let checked = if mark.exists() { check(path).await } else { Ok(()) };
    let opened = match checked {
        Ok(()) => {
            let _ = fs::remove_file(mark);
            set_up(path, schema).await
        }
        damaged => damaged,
    };
    opened.map_err(|error| match error {
        StoreError::Broken(source) => StoreError::Damaged { path: path.to_owned(), source },
        StoreError::Disk(error) => cannot(io::Error::other(error.to_string())),
        error @ (StoreError::Open { .. }
        | StoreError::Newer { .. }
        | StoreError::Damaged { .. }
        | StoreError::Busy(_)
        | StoreError::Database(_)
        | StoreError::Log(_)
        | StoreError::Write(_)
        | StoreError::InUse
        | StoreError::Closed
        | StoreError::Late(_)) => error,
    })
}

/// Path of a mark next to the database: damage was found while it was in use, so it is checked before the next use.
pub(crate) fn suspect_mark(path: &Path) -> PathBuf {
    with_suffix(path, "-suspect")
}

/// Checks the integrity of the whole file.
async fn check(path: &Path) -> Result<(), StoreError> {
    let mut connection = options().filename(path).connect().await?;
    let verdict = sqlx::query_scalar("PRAGMA integrity_check(1)").fetch_one(&mut connection).await;
    connection.close().await?;
    let verdict: String = verdict?;
    if verdict == "ok" { Ok(()) } else { Err(StoreError::Broken(sqlx::Error::Protocol(verdict))) }
}

/// Locks a file. The lock is held until the file is dropped.
fn lock(path: &Path) -> io::Result<File> {
    let file = private(path)?;
    file.lock()?;
    Ok(file)
}

/// Creates the file if it is missing: an empty file is an empty database. SQLite gives its other files the same
/// permissions.
fn create(path: &Path) -> io::Result<()> {
    let file = private(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Opens a file that only this user can read. Creates the file and its folder if they are missing.
fn private(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)
}

async fn set_up(path: &Path, schema: Schema) -> Result<(), StoreError> {
    let mut options = options().filename(path).journal_mode(SqliteJournalMode::Wal);
    // Only effective while the database is empty. Later it would change nothing, but still write.
    if fs::metadata(path).is_ok_and(|file| file.len() == 0) {
        options = options.auto_vacuum(SqliteAutoVacuum::Incremental);
    }
    let mut connection = options.connect().await?;
    let migrated = schema.migrate(&mut connection, path.parent()).await;
    let closed = connection.close().await;
    match migrated? {
        Err(NewerSchema(found)) => {
            Err(StoreError::Newer { path: path.to_owned(), found, known: schema.known_version() })
        }
        Ok(()) => Ok(closed?),
    }
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
