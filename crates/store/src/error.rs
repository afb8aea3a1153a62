//! Errors of the database. None of them stops a turn: the caller reports it and continues without the database.

use std::io;
use std::path::PathBuf;

/// Primary result codes of SQLite.
mod code {
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const READ_ONLY: i32 = 8;
    pub(super) const IO: i32 = 10;
    pub(super) const CORRUPT: i32 = 11;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANNOT_OPEN: i32 = 14;
    pub(super) const NOT_A_DATABASE: i32 = 26;
}

/// An error of the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error(
        "{} was written by a newer version of trunkline (format {found}, this one knows {known}); update trunkline, or \
         choose another --state folder",
        path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    /// The file is left unchanged: its content may be worth more than a working database.
    #[error("{} is damaged: {source}", path.display())]
    Damaged { path: PathBuf, source: sqlx::Error },
    /// The disk is full, read-only or failing.
    #[error("cannot write to the database: {0}")]
    Disk(#[source] sqlx::Error),
    /// Another process kept the write lock for too long.
    #[error("the database is busy: {0}")]
    Busy(#[source] sqlx::Error),
    /// Damage that was found while the file was in use. If the index task finds it, the next process to open the file
    /// checks all of it and refuses it.
    #[error("the database is damaged: {0}")]
    Broken(#[source] sqlx::Error),
    #[error("the database: {0}")]
    Database(#[source] sqlx::Error),
    #[error("cannot read the log: {0}")]
    Log(#[source] io::Error),
    /// The output of an export cannot be written.
    #[error(transparent)]
    Write(io::Error),
    /// The database cannot be upgraded now.
    #[error("an earlier version of trunkline is running in this --state folder; stop it to upgrade")]
    InUse,
    /// The index task has ended.
    #[error("the database is closed")]
    Closed,
    /// Rows are not in the database yet.
    #[error("the database could not be written: {0}")]
    Late(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match primary_code(&error) {
            Some(code::BUSY | code::LOCKED) => Self::Busy(error),
            Some(code::READ_ONLY | code::IO | code::FULL | code::CANNOT_OPEN) => Self::Disk(error),
            Some(code::CORRUPT | code::NOT_A_DATABASE) => Self::Broken(error),
            _ if matches!(error, sqlx::Error::PoolTimedOut) => Self::Busy(error),
            _ => Self::Database(error),
        }
    }
}

impl StoreError {
    /// Advice for a file that cannot be opened. None if the message is advice enough.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Damaged { path, .. } => {
                let path = path.display();
                Some(format!(
                    "move {path}, {path}-wal and {path}-shm away to start with an empty database, or recover its content \
                     with sqlite3 {path} .recover; or choose another --state folder"
                ))
            }
            Self::Open { .. } | Self::Disk(_) => {
                Some("the file and its folder must be writable; or choose another --state folder".into())
            }
            Self::Busy(_) => {
                Some("another program keeps it locked: stop that program, or choose another --state folder".into())
            }
            Self::Newer { .. }
            | Self::Broken(_)
            | Self::Database(_)
            | Self::Log(_)
            | Self::Write(_)
            | Self::InUse
            | Self::Closed
            | Self::Late(_) => None,
        }
    }
}

/// The primary code is the lowest byte of an extended code.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}
