//! Connections to a database file: one that writes, and a few that read.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

use crate::error::StoreError;
use crate::opening;
use crate::schema::Schema;
use crate::transaction::Transaction;

const MAX_READERS: u32 = 4;

/// Time to wait for a connection: longer than SQLite waits for a lock.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections to a database. Cheap to clone: clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    /// A single connection. SQLite has one writer at a time. Writers of this process queue here, in order, instead of
    /// competing for its lock.
    writing: SqlitePool,
    reading: SqlitePool,
    /// None for a database in memory.
    path: Option<Arc<Path>>,
    /// The file that the connections have open. None for a database in memory.
    file: Option<FileId>,
    /// A database in memory lives as long as a connection to it.
    _anchor: Option<SqlitePool>,
}

/// Device and inode of a file. Its name may be that of another file later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId(u64, u64);

impl FileId {
    fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|file| Self(file.dev(), file.ino()))
    }
}

impl Connections {
    /// Opens the file, or creates it. A damaged file, or one of a newer version, is refused and left unchanged.
    pub(crate) async fn open(path: &Path, schema: Schema) -> Result<Self, StoreError> {
        opening::prepare(path, schema).await?;
        let options = opening::options().filename(path);
        let writing = pool(1).connect_with(options.clone()).await?;
        let reading = pool(MAX_READERS).connect_lazy_with(options.pragma("query_only", "on"));
        Ok(Self { writing, reading, path: Some(path.into()), file: FileId::of(path).ok(), _anchor: None })
    }

    /// Creates a database in memory that ends with its last clone.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) async fn in_memory(schema: Schema) -> Result<Self, StoreError> {
        let name = format!("file:trunkline-{}", uuid::Uuid::now_v7());
        let options = opening::options().filename(name).in_memory(true).shared_cache(true);
        let anchor = pool(1).connect_with(options.clone()).await?;
        let migrated = schema.migrate(&mut *anchor.acquire().await?, None).await?;
        migrated.expect("a new database has no newer version");
        // Connections to a shared cache do not wait for each other, so there is only one.
        let one = pool(1).connect_with(options).await?;
        Ok(Self { writing: one.clone(), reading: one, path: None, file: None, _anchor: Some(anchor) })
    }

    /// The connection for single statements that write.
    pub(crate) fn writing(&self) -> &SqlitePool {
        &self.writing
    }

    /// The connections for queries.
    pub(crate) fn reading(&self) -> &SqlitePool {
        &self.reading
    }

    /// Begins a transaction, for several statements that write.
    pub(crate) async fn transaction(&self) -> Result<Transaction, StoreError> {
        Transaction::begin(&self.writing).await
    }

    /// None for a database in memory.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether the file was deleted, or another file has its name. New connections would not open the same file.
    pub(crate) fn is_replaced(&self) -> bool {
        self.path.as_ref().is_some_and(|path| match FileId::of(path) {
            Ok(file) => Some(file) != self.file,
            // A folder that cannot be read at present says nothing about the file.
            Err(error) => error.kind() == ErrorKind::NotFound,
        })
    }

    /// Whether these are connections to the same file as the others.
    pub(crate) fn is_same_file(&self, others: &Self) -> bool {
        self.file == others.file
    }

    /// Marks the file as possibly damaged, so that the next process to open it checks it.
    pub(crate) fn mark_suspect(&self) {
        if let Some(path) = &self.path
            && let Err(error) = std::fs::write(opening::suspect_mark(path), "")
        {
            tracing::error!("{} is damaged, and cannot be marked as such: {error}", path.display());
        }
    }

    /// Truncates the file in small steps, so that other writers get their turn.
    pub(crate) async fn free_disk_space(&self) -> Result<(), StoreError> {
        let mut free = i64::MAX;
        loop {
            let now: i64 = sqlx::query_scalar("PRAGMA freelist_count").fetch_one(&self.writing).await?;
            if now == 0 || now >= free {
                break;
            }
            free = now;
            sqlx::raw_sql("PRAGMA incremental_vacuum(1000)").execute(&self.writing).await?;
        }
        sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&self.writing).await?;
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.writing.is_closed()
    }

    /// Waits for pending operations and closes the file.
    pub(crate) async fn close(&self) {
        self.reading.close().await;
        self.writing.close().await;
    }
}

fn pool(size: u32) -> SqlitePoolOptions {
    let pool = SqlitePoolOptions::new().max_connections(size).acquire_timeout(ACQUIRE_TIMEOUT);
    // Beyond the timeout, so that the pool never logs a slow acquisition: the caller logs the timeout, once.
    let pool = pool.acquire_slow_threshold(2 * ACQUIRE_TIMEOUT);
    // The connection to a file does not break, and a database in memory must not be closed.
    pool.test_before_acquire(false).idle_timeout(None).max_lifetime(None)
}
