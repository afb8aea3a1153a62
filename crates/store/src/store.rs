//! The database: one connection that writes, and a few that read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

use crate::error::StoreError;
use crate::integrity;
use crate::opening;
use crate::schema;
use crate::transaction::Transaction;

/// Name of the database file in the state folder.
pub const DATABASE_FILE: &str = "trunkline.db";

const MAX_READERS: u32 = 4;

/// Time to wait for a connection: longer than SQLite waits for a lock.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// The database. Cheap to clone: clones share their connections.
#[derive(Debug, Clone)]
pub struct Store {
    /// A single connection. SQLite has one writer at a time. Writers of this process queue here, in order, instead of
    /// competing for its lock.
    writing: SqlitePool,
    reading: SqlitePool,
    /// None for a database in memory.
    path: Option<Arc<Path>>,
    /// A database in memory lives as long as a connection to it.
    _anchor: Option<SqlitePool>,
}

impl Store {
    /// Prepares the file and connects to it. [`open`](Self::open) does this and recovers journals.
    pub(crate) async fn connect(path: &Path) -> Result<Self, StoreError> {
        opening::prepare(path).await?;
        let options = opening::options().filename(path);
        let writing = pool(1).connect_with(options.clone()).await?;
        let reading = pool(MAX_READERS).connect_lazy_with(options.pragma("query_only", "on"));
        Ok(Self { writing, reading, path: Some(path.into()), _anchor: None })
    }

    /// Creates a database in memory that ends with its last clone, for tests.
    pub async fn in_memory() -> Result<Self, StoreError> {
        let name = format!("file:trunkline-{}", uuid::Uuid::now_v7());
        let options = opening::options().filename(name).in_memory(true).shared_cache(true);
        let anchor = pool(1).connect_with(options.clone()).await?;
        let migrated = schema::migrate(&mut *anchor.acquire().await?).await?;
        migrated.expect("a new database has no newer version");
        // Connections to a shared cache do not wait for each other, so there is only one.
        let one = pool(1).connect_with(options).await?;
        Ok(Self { writing: one.clone(), reading: one, path: None, _anchor: Some(anchor) })
    }

    /// Waits for pending operations and closes the file. Optional: without it, no completed operation is lost.
    pub async fn close(&self) {
        self.reading.close().await;
        self.writing.close().await;
    }

    /// Lists everything that is wrong with the file, in SQLite's words. Reads all of it. A damaged file is refused by the
    /// next process to open it.
    pub async fn check(&self) -> Result<Vec<String>, StoreError> {
        let damage = integrity::damage(self.reading()).await?;
        if !damage.is_empty() {
            self.mark_suspect();
            return Ok(damage);
        }
        integrity::foreign_key_violations(self.reading()).await
    }

    /// Marks the file as possibly damaged, so that the next process to open it checks it.
    pub(crate) fn mark_suspect(&self) {
        if let Some(path) = &self.path
            && let Err(error) = std::fs::write(opening::suspect_mark(path), "")
        {
            tracing::error!("{} is damaged, and cannot be marked as such: {error}", path.display());
        }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

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

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::archive::ArchiveRecord;
    use crate::run::RunState;
    use crate::run_index::{TurnBegun, TurnEnded};
    use crate::session::{ClientId, NewSession};

    fn turn(run: &str, prompt: String) -> ArchiveRecord {
        ArchiveRecord::Begun(TurnBegun { run: run.to_owned(), prompt, ..TurnBegun::default() })
    }

    /// Simulates a full disk: SQLite returns the same error if its limit of pages is reached. The limit belongs to the
    /// connection, and ends with it.
    async fn fill(store: &Store) {
        sqlx::raw_sql("PRAGMA max_page_count = 1").execute(store.writing()).await.unwrap();
    }

    async fn unfill(store: &Store) {
        sqlx::raw_sql("PRAGMA max_page_count = 1000000").execute(store.writing()).await.unwrap();
    }

    #[tokio::test]
    async fn store_works_after_caches_are_freed() {
        let store = Store::in_memory().await.unwrap();
        for run in ["a", "b"] {
            let (writer, task) = store.writer();
            let mut tasks = JoinSet::new();
            tasks.spawn(task.run(CancellationToken::new()));
            writer.send(turn(run, String::new())).await.unwrap();
            drop(writer);
            assert_eq!(tasks.join_all().await[0].rows, 1);
            store.shrink().await.unwrap();
        }
        assert!(store.run("b", None).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn writes_fail_while_disk_is_full_and_succeed_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap();
        let ((writer, task), stop, mut tasks) = (store.writer(), CancellationToken::new(), JoinSet::new());
        tasks.spawn(task.run(stop.clone()));
        fill(&store).await;
        writer.send(turn("lost", "x".repeat(100_000))).await.unwrap();
        let lost = writer.flush().await;
        assert!(matches!(&lost, Err(StoreError::Lost(why)) if why.contains("full")), "{lost:?}");
        assert!(writer.disk_trouble().is_some_and(|why| why.contains("full")));
        fill(&store).await;
        let refused = writer.send_surely(turn("refused", "x".repeat(100_000))).await;
        assert!(matches!(&refused, Err(StoreError::Lost(why)) if why.contains("full")), "{refused:?}");
        let owner = ClientId::local();
        let begins = "x".repeat(100_000);
        let new = NewSession {
            owner: &owner,
            model: &begins,
            provider: "p",
            repo: Path::new("/"),
            begins: &begins,
            parent: None,
        };
        fill(&store).await;
        let refused = store.session_begin(&new).await;
        assert!(matches!(refused, Err(StoreError::Disk(_))), "{refused:?}");
        unfill(&store).await;
        store.try_write().await.unwrap();
        writer.send_surely(turn("kept", "x".repeat(100_000))).await.unwrap();
        assert_eq!(writer.disk_trouble(), None);
        store.session_begin(&new).await.unwrap();
        stop.cancel();
        let totals = tasks.join_next().await.unwrap().unwrap();
        assert_eq!((totals.rows, totals.lost), (1, 2));
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn end_of_a_turn_is_written_later_when_disk_was_full() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap();
        let ((writer, task), stop, mut tasks) = (store.writer(), CancellationToken::new(), JoinSet::new());
        tasks.spawn(task.run(stop.clone()));
        writer.send_surely(turn("r", String::new())).await.unwrap();
        fill(&store).await;
        let ended = TurnEnded { run: "r".to_owned(), answer: "x".repeat(60_000), ..TurnEnded::default() };
        writer.send(ArchiveRecord::Ended(ended)).await.unwrap();
        writer.flush().await.unwrap();
        assert!(writer.disk_trouble().is_some());
        assert_eq!(store.run("r", None).await.unwrap().unwrap().state, RunState::Queued, "not yet");
        unfill(&store).await;
        writer.flush().await.unwrap();
        assert_eq!(store.run("r", None).await.unwrap().unwrap().state, RunState::Finished);
        assert_eq!(writer.disk_trouble(), None);
        stop.cancel();
        assert_eq!(tasks.join_next().await.unwrap().unwrap().lost, 0);
    }

    #[tokio::test]
    async fn transaction_is_rolled_back_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        for store in [Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap(), Store::in_memory().await.unwrap()]
        {
            for _ in 0..3 {
                let mut dropped = store.transaction().await.unwrap();
                let query = sqlx::query("INSERT INTO cursors (place, message, changed) VALUES ('c', '1', 0)");
                query.execute(&mut *dropped).await.unwrap();
                drop(dropped);
                assert_eq!(store.cursor("c").await.unwrap(), None);
            }
            store.set_cursor("c", "2").await.unwrap();
            assert_eq!(store.cursor("c").await.unwrap().as_deref(), Some("2"));
        }
    }
}
