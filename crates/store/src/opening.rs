//! Opening the file: made where there is none, brought up to date, refused where it is broken or cannot be written.
//!
//! One process at a time does this, by a lock on a file beside it: SQLite itself lets nobody wait while the journal's mode
//! changes.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};

use crate::error::StoreError;
use crate::schema::{self, KNOWN, Newer};

/// How long one waits for another's transaction.
const PATIENCE: Duration = Duration::from_secs(5);

/// What every connection is opened with. Statements are not logged: they have people's words in them.
pub(crate) fn options() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .foreign_keys(true)
        .busy_timeout(PATIENCE)
        .synchronous(SqliteSynchronous::Normal)
        // What is forgotten is overwritten, not only unlinked.
        .pragma("secure_delete", "on")
        // What a statement changes is noted in case it fails half way: for each of ours that was a file made and removed.
        .pragma("temp_store", "memory")
        .disable_statement_logging()
}

/// Sees to it that there is a good database of our version at `path`.
pub(crate) async fn prepare(path: &Path) -> Result<(), StoreError> {
    let cannot = |source| StoreError::Open { path: path.to_owned(), source };
    let beside = with_suffix(path, "-lock");
    // Another process may have it, and take its time: not on a thread that others wait for.
    let locked = tokio::task::spawn_blocking(move || lock(&beside)).await;
    let _one_at_a_time = locked.map_err(io::Error::other).flatten().map_err(cannot)?;
    create(path).map_err(cannot)?;
    let suspicion = suspicion(path);
    let looked = if suspicion.exists() { examine(path).await } else { Ok(()) };
    let opened = match looked {
        Ok(()) => {
            let _there_is_none = fs::remove_file(suspicion);
            set_up(path).await
        }
        wrong => wrong,
    };
    opened.map_err(|error| match error {
        StoreError::Broken(source) => StoreError::Damaged { path: path.to_owned(), source },
        StoreError::Disk(error) => cannot(io::Error::other(error.to_string())),
        error @ (StoreError::Open { .. }
        | StoreError::Newer { .. }
        | StoreError::Damaged { .. }
        | StoreError::Busy(_)
        | StoreError::NoSuchSession
        | StoreError::Database(_)
        | StoreError::Write(_)
        | StoreError::Closed
        | StoreError::Lost(_)) => error,
    })
}

/// A file beside the database: somebody found it damaged while it was in use, so it is read through before the next use.
pub(crate) fn suspicion(path: &Path) -> PathBuf {
    with_suffix(path, "-suspect")
}

/// Reads all of it.
async fn examine(path: &Path) -> Result<(), StoreError> {
    let mut connection = options().filename(path).connect().await?;
    let verdict = sqlx::query_scalar("PRAGMA integrity_check(1)").fetch_one(&mut connection).await;
    connection.close().await?;
    let verdict: String = verdict?;
    if verdict == "ok" { Ok(()) } else { Err(StoreError::Broken(sqlx::Error::Protocol(verdict))) }
}

/// Held until the file is dropped.
fn lock(path: &Path) -> io::Result<File> {
    let file = private(path)?;
    file.lock()?;
    Ok(file)
}

/// An empty file is an empty database. SQLite gives its other files the same permissions.
fn create(path: &Path) -> io::Result<()> {
    let file = private(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Opens a file for nobody else's eyes, and makes it and its folder where they are not there.
pub(crate) fn private(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)
}

async fn set_up(path: &Path) -> Result<(), StoreError> {
    let mut options = options().filename(path).journal_mode(SqliteJournalMode::Wal);
    // To be said before there is anything in it; afterwards it changes nothing, and yet it writes.
    if fs::metadata(path).is_ok_and(|file| file.len() == 0) {
        options = options.auto_vacuum(SqliteAutoVacuum::Incremental);
    }
    let mut connection = options.connect().await?;
    let migrated = schema::migrate(&mut connection).await;
    let closed = connection.close().await;
    match migrated? {
        Err(Newer(found)) => Err(StoreError::Newer { path: path.to_owned(), found, known: KNOWN }),
        Ok(()) => Ok(closed?),
    }
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
