//! The database: one connection that writes, and a few that read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use tokio::sync::watch;

use crate::error::StoreError;
use crate::index::IndexFeed;
use crate::log::LogFolder;
use crate::opening;
use crate::transaction::Transaction;

/// Name of the database file in the state folder.
pub const DATABASE_FILE: &str = "trunkline.db";

const MAX_READERS: u32 = 4;

/// Time to wait for a connection: longer than SQLite waits for a lock.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Progress of [`Store::catch_up`].
#[derive(Debug, Default)]
pub(crate) struct Indexing {
    /// Whether everything that the log had when the database was opened is indexed.
    pub(crate) ready: watch::Sender<bool>,
    /// Held while the log is being indexed.
    pub(crate) running: tokio::sync::Mutex<()>,
}

/// The database. Cheap to clone: clones share their connections.
#[derive(Debug, Clone)]
pub struct Store {
    /// A single connection. SQLite has one writer at a time. Writers of this process queue here, in order, instead of
    /// competing for its lock.
    writing: SqlitePool,
    reading: SqlitePool,
    /// None for a database in memory.
    path: Option<Arc<Path>>,
    /// None for a database in memory.
    log: Option<LogFolder>,
    /// Rows of this process that the database does not have yet.
    feed: IndexFeed,
    indexing: Arc<Indexing>,
    /// A database in memory lives as long as a connection to it.
    _anchor: Option<SqlitePool>,
}

impl Store {
    /// Opens the database, or creates it, and indexes what the log has and the database has not. A damaged database, or
    /// one of a newer version, is refused and left unchanged.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Self::open_unindexed(path).await?;
        store.catch_up(None).await?;
        Ok(store)
    }

    /// Opens the database like [`open`](Self::open), but does not index anything yet. Queries wait until
    /// [`catch_up`](Self::catch_up) has done so.
    pub async fn open_unindexed(path: &Path) -> Result<Self, StoreError> {
        opening::prepare(path).await?;
        let options = opening::options().filename(path);
        let writing = pool(1).connect_with(options.clone()).await?;
        let reading = pool(MAX_READERS).connect_lazy_with(options.pragma("query_only", "on"));
        let log = path.parent().map(LogFolder::of_state);
        let indexing = Arc::new(Indexing::default());
        Ok(Self { writing, reading, path: Some(path.into()), log, feed: IndexFeed::default(), indexing, _anchor: None })
    }

    /// Creates a database in memory that ends with its last clone.
    #[cfg(any(test, feature = "test-util"))]
    pub async fn in_memory() -> Result<Self, StoreError> {
        let name = format!("file:trunkline-{}", uuid::Uuid::now_v7());
        let options = opening::options().filename(name).in_memory(true).shared_cache(true);
        let anchor = pool(1).connect_with(options.clone()).await?;
        let migrated = crate::schema::migrate(&mut *anchor.acquire().await?, None).await?;
        migrated.expect("a new database has no newer version");
        // Connections to a shared cache do not wait for each other, so there is only one.
        let one = pool(1).connect_with(options).await?;
        let (feed, indexing) = (IndexFeed::default(), Arc::new(Indexing::default()));
        indexing.ready.send_replace(true);
        Ok(Self { writing: one.clone(), reading: one, path: None, log: None, feed, indexing, _anchor: Some(anchor) })
    }

    /// Creates a database in memory, and indexes the log of a state folder in it, as [`open`](Self::open) does.
    #[cfg(any(test, feature = "test-util"))]
    pub async fn in_memory_with_log(state: &Path) -> Result<Self, StoreError> {
        let store = Self { log: Some(LogFolder::of_state(state)), ..Self::in_memory().await? };
        store.catch_up(None).await?;
        Ok(store)
    }

    /// Waits for pending operations and closes the file. Optional: without it, no completed operation is lost.
    pub async fn close(&self) {
        self.reading.close().await;
        self.writing.close().await;
    }

    /// Marks the file as possibly damaged, so that the next process to open it checks it.
    pub(crate) fn mark_suspect(&self) {
        if let Some(path) = &self.path
            && let Err(error) = std::fs::write(opening::suspect_mark(path), "")
        {
            tracing::error!("{} is damaged, and cannot be marked as such: {error}", path.display());
        }
    }

    pub(crate) fn log(&self) -> Option<&LogFolder> {
        self.log.as_ref()
    }

    /// The folder of the database. None for a database in memory.
    pub(crate) fn state_folder(&self) -> Option<&Path> {
        self.path.as_ref()?.parent()
    }

    pub(crate) fn feed(&self) -> &IndexFeed {
        &self.feed
    }

    /// The connections for queries of the index, once it has everything that the log had when the database was opened.
    pub(crate) async fn indexed(&self) -> &SqlitePool {
        if !*self.indexing.ready.borrow() {
            let mut ready = self.indexing.ready.subscribe();
            // `self` holds the sender, so this never fails.
            let _ = ready.wait_for(|ready| *ready).await;
        }
        &self.reading
    }

    pub(crate) fn indexing(&self) -> &Indexing {
        &self.indexing
    }

    /// The connections for queries of anything else.
    pub(crate) fn reading(&self) -> &SqlitePool {
        &self.reading
    }

    /// Frees caches.
    pub async fn shrink(&self) -> Result<(), StoreError> {
        let mut connection = self.writing.acquire().await?;
        connection.clear_cached_statements().await?;
        sqlx::raw_sql("PRAGMA shrink_memory").execute(&mut *connection).await?;
        Ok(())
    }

    /// Writes a row and deletes it again, to find out whether the disk accepts writes.
    pub async fn try_write(&self) -> Result<(), StoreError> {
        const PLACE: &str = ".write-test";
        self.set_cursor(PLACE, "").await?;
        sqlx::query("DELETE FROM cursors WHERE place = ?1").bind(PLACE).execute(self.writing()).await?;
        Ok(())
    }

    /// The connection for single statements that write.
    pub(crate) fn writing(&self) -> &SqlitePool {
        &self.writing
    }

    /// Begins a transaction, for several statements that write.
    pub(crate) async fn transaction(&self) -> Result<Transaction, StoreError> {
        Transaction::begin(&self.writing).await
    }
}

fn pool(size: u32) -> SqlitePoolOptions {
    let pool = SqlitePoolOptions::new().max_connections(size).acquire_timeout(ACQUIRE_TIMEOUT);
    // Beyond the timeout, so that the pool never logs a slow acquisition: the caller logs the timeout, once.
    let pool = pool.acquire_slow_threshold(2 * ACQUIRE_TIMEOUT);
    // The connection to a file does not break, and a database in memory must not be closed.
    pool.test_before_acquire(false).idle_timeout(None).max_lifetime(None)
}
