//! Checks a database file without changing or creating it, for `trunkline doctor`.

use std::fs::{self, OpenOptions};
use std::path::Path;

use rustix::fs::{Access, access, statvfs};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::error::StoreError;
use crate::integrity::{damage, foreign_key_violations};
use crate::opening;
use crate::schema::{self, Schema};

/// Status of a database file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseStatus {
    /// Version of its tables.
    pub version: Option<i64>,
    /// Size in bytes, write-ahead log included.
    pub size: u64,
    /// Free bytes on its disk.
    pub free: Option<u64>,
    /// Problems that were found.
    pub wrong: Vec<String>,
}

impl DatabaseStatus {
    /// Checks all of the file. None if it does not exist.
    pub async fn of(path: &Path) -> Option<Self> {
        let size_of = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
        let log = opening::with_suffix(path, "-wal");
        fs::symlink_metadata(path).ok()?;
        let free = path.parent().and_then(|folder| statvfs(folder).ok()).map(|disk| disk.f_bavail * disk.f_frsize);
        let mut status = Self { version: None, size: size_of(path) + size_of(&log), free, wrong: Vec::new() };
        if let Err(error) = OpenOptions::new().append(true).open(path) {
            status.wrong.push(format!("cannot be written: {error}"));
        }
        if let Some(folder) = path.parent()
            && let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK)
        {
            status.wrong.push(format!("its folder cannot be written: {error}"));
        }
        if let Err(error) = status.read(path).await {
            status.wrong.push(error.to_string());
        }
        Some(status)
    }

    async fn read(&mut self, path: &Path) -> Result<(), StoreError> {
        let options = SqliteConnectOptions::new().filename(path).read_only(true).disable_statement_logging();
        let mut connection = options.connect().await?;
        let read = self.read_all(&mut connection, Schema::of_file(path)).await;
        let closed = connection.close().await;
        read?;
        Ok(closed?)
    }

    async fn read_all(&mut self, connection: &mut SqliteConnection, schema: Schema) -> Result<(), StoreError> {
        let (version, known) = (schema::version(connection).await?, schema.known_version());
        self.version = Some(version);
        if version > known {
            self.wrong.push(format!("was written by a newer version of trunkline (this one knows format {known})"));
        }
        self.wrong.extend(damage(&mut *connection).await?);
        self.wrong.extend(foreign_key_violations(&mut *connection).await?);
        Ok(())
    }
}
