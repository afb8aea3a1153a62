//! What can go wrong with the database. None of it stops a turn: the caller says so and goes on without a memory.

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
    /// It is left as it is: what is in it may be worth more than what comes next.
    #[error("{} is damaged: {source}", path.display())]
    Damaged { path: PathBuf, source: sqlx::Error },
    /// The disk is full or read-only, or does not answer.
    #[error("cannot write to the database: {0}")]
    Disk(#[source] sqlx::Error),
    /// Others kept the write lock for longer than anyone should.
    #[error("the database is busy: {0}")]
    Busy(#[source] sqlx::Error),
    /// Where the archive or a check meets this, the next one to open the file reads all of it, and refuses it.
    #[error("the database is damaged: {0}")]
    Broken(#[source] sqlx::Error),
    #[error("there is no such session")]
    NoSuchSession,
    #[error("the database: {0}")]
    Database(#[source] sqlx::Error),
    /// Of an export.
    #[error(transparent)]
    Write(io::Error),
    /// The archive's writer has ended; what is sent to it now is not kept.
    #[error("the archive is closed")]
    Closed,
    /// Records were lost, as the log says.
    #[error("the archive could not be written: {0}")]
    Lost(String),
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
    /// What to do about a file that cannot be opened; none where the error says all there is to say.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Damaged { path, .. } => {
                let path = path.display();
                Some(format!(
                    "move {path}, {path}-wal and {path}-shm away to begin anew, or recover what can be with sqlite3 \
                     {path} .recover; or choose another --state folder"
                ))
            }
            Self::Open { .. } | Self::Disk(_) => Some(
                "it must be a file that can be written, in a folder that can be; or choose another --state folder"
                    .into(),
            ),
            Self::Busy(_) => Some("another program keeps it locked: end that, or choose another --state folder".into()),
            Self::Newer { .. }
            | Self::Broken(_)
            | Self::NoSuchSession
            | Self::Database(_)
            | Self::Write(_)
            | Self::Closed
            | Self::Lost(_) => None,
        }
    }
}

/// An extended code has the primary one in its lowest byte.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}
