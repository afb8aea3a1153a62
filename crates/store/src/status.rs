//! How the file is, for somebody who wants to know: looked at, not changed, and not made where there is none.

use std::fs::{self, OpenOptions};
use std::path::Path;

use rustix::fs::{Access, access, statvfs};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::error::StoreError;
use crate::opening;
use crate::schema::{self, KNOWN};
use crate::store::{foreign, sound};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The version of its tables.
    pub version: Option<i64>,
    /// In bytes, with its log.
    pub size: u64,
    /// How much room there is on its disk.
    pub free: Option<u64>,
    /// What is wrong with it; nothing if it is well.
    pub wrong: Vec<String>,
}

impl Condition {
    /// Reads all of the file; none if there is no such file.
    pub async fn of(path: &Path) -> Option<Self> {
        let size_of = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
        let log = opening::with_suffix(path, "-wal");
        fs::symlink_metadata(path).ok()?;
        let free = path.parent().and_then(|folder| statvfs(folder).ok()).map(|disk| disk.f_bavail * disk.f_frsize);
        let mut condition = Self { version: None, size: size_of(path) + size_of(&log), free, wrong: Vec::new() };
        if let Err(error) = OpenOptions::new().append(true).open(path) {
            condition.wrong.push(format!("cannot be written: {error}"));
        }
        if let Some(folder) = path.parent()
            && let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK)
        {
            condition.wrong.push(format!("its folder cannot be written: {error}"));
        }
        if let Err(error) = condition.read(path).await {
            condition.wrong.push(error.to_string());
        }
        Some(condition)
    }

    async fn read(&mut self, path: &Path) -> Result<(), StoreError> {
        let options = SqliteConnectOptions::new().filename(path).read_only(true).disable_statement_logging();
        let mut connection = options.connect().await?;
        let read = self.read_all(&mut connection).await;
        let closed = connection.close().await;
        read?;
        Ok(closed?)
    }

    async fn read_all(&mut self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let version = schema::version(connection).await?;
        self.version = Some(version);
        if version > KNOWN {
            self.wrong.push(format!("was written by a newer version of trunkline (this one knows format {KNOWN})"));
        }
        self.wrong.extend(sound(&mut *connection).await?);
        self.wrong.extend(foreign(&mut *connection).await?);
        Ok(())
    }
}
