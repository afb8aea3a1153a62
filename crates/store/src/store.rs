//! The database itself: one connection that writes, a few that read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;
use sqlx::Row;
use sqlx::sqlite::{SqliteExecutor, SqlitePool, SqlitePoolOptions, SqliteRow};

use crate::archive::recover;
use crate::error::StoreError;
use crate::opening;
use crate::schema;
use crate::transaction::Transaction;

/// The file's name in the folder for private state.
pub const FILE: &str = "trunkline.db";

const READERS: u32 = 4;

/// How long to wait for a connection: as long as SQLite waits for a lock, and a little more.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is remembered. Cheap to clone: all clones are one.
#[derive(Debug, Clone)]
pub struct Store {
    /// SQLite has one writer at a time; within a process they queue here, in order, rather than on its lock.
    writing: SqlitePool,
    reading: SqlitePool,
    /// None of one in memory.
    path: Option<Arc<Path>>,
    /// One in memory lives as long as some connection to it.
    _anchor: Option<SqlitePool>,
}

impl Store {
    /// Opens the database, or makes it; what a process that was killed had on its way into it is in it. One that is broken
    /// or of a newer version is refused and left alone.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        opening::prepare(path).await?;
        let options = opening::options().filename(path);
        let writing = pool(1).connect_with(options.clone()).await?;
        let reading = pool(READERS).connect_lazy_with(options.pragma("query_only", "on"));
        let store = Self { writing, reading, path: Some(path.into()), _anchor: None };
        recover(&store, path).await;
        Ok(store)
    }

    /// Takes in what processes that were killed since had on their way into it, as [`open`](Self::open) does.
    pub async fn recover(&self) {
        if let Some(path) = &self.path {
            recover(self, path).await;
        }
    }

    /// One that ends with the last of its clones, for tests.
    pub async fn in_memory() -> Result<Self, StoreError> {
        let name = format!("file:trunkline-{}", uuid::Uuid::now_v7());
        let options = opening::options().filename(name).in_memory(true).shared_cache(true);
        let anchor = pool(1).connect_with(options.clone()).await?;
        let migrated = schema::migrate(&mut *anchor.acquire().await?).await?;
        migrated.expect("a new database is no newer than we are");
        // Several that write and read at once would not wait for each other here.
        let one = pool(1).connect_with(options).await?;
        Ok(Self { writing: one.clone(), reading: one, path: None, _anchor: Some(anchor) })
    }

    /// Waits for what is going on and closes the file. Not a must: nothing that was answered is lost without it.
    pub async fn close(&self) {
        self.reading.close().await;
        self.writing.close().await;
    }

    /// Everything that is wrong with the file, in SQLite's words; nothing if it is well. Reads all of it. A damaged one is
    /// refused by the next to open it.
    pub async fn check(&self) -> Result<Vec<String>, StoreError> {
        let damage = sound(self.reading()).await?;
        if !damage.is_empty() {
            self.suspect();
            return Ok(damage);
        }
        foreign(self.reading()).await
    }

    /// Leaves word for the next one to open the file: something in it is damaged.
    pub(crate) fn suspect(&self) {
        if let Some(path) = &self.path
            && let Err(error) = std::fs::write(opening::suspicion(path), "")
        {
            tracing::error!("{} is damaged, and there is no way to note it: {error}", path.display());
        }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn reading(&self) -> &SqlitePool {
        &self.reading
    }

    /// Gives back the memory that only makes it faster.
    pub async fn shrink(&self) -> Result<(), StoreError> {
        let mut connection = self.writing.acquire().await?;
        connection.clear_cached_statements().await?;
        sqlx::raw_sql("PRAGMA shrink_memory").execute(&mut *connection).await?;
        Ok(())
    }

    /// Writes something, and takes it away again: whether the disk takes writes is not known before.
    pub async fn try_write(&self) -> Result<(), StoreError> {
        const PLACE: &str = ".write-test";
        self.set_cursor(PLACE, "").await?;
        sqlx::query("DELETE FROM cursors WHERE place = ?1").bind(PLACE).execute(self.writing()).await?;
        Ok(())
    }

    /// For single statements.
    pub(crate) fn writing(&self) -> &SqlitePool {
        &self.writing
    }

    /// For several statements.
    pub(crate) async fn transaction(&self) -> Result<Transaction, StoreError> {
        Transaction::begin(&self.writing).await
    }
}

/// What is wrong with its pages.
pub(crate) async fn sound<'a>(reading: impl SqliteExecutor<'a>) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar("PRAGMA integrity_check(20)").fetch_all(reading).await;
    let mut damage: Vec<String> = rows.map_err(StoreError::from).or_else(|error| {
        if matches!(error, StoreError::Broken(_)) { Ok(vec![error.to_string()]) } else { Err(error) }
    })?;
    damage.retain(|row| row != "ok");
    Ok(damage)
}

/// What belongs to nothing.
pub(crate) async fn foreign<'a>(reading: impl SqliteExecutor<'a>) -> Result<Vec<String>, StoreError> {
    let strays = sqlx::query("PRAGMA foreign_key_check").fetch_all(reading).await?;
    let stray = |row: SqliteRow| {
        let (table, parent): (String, String) = (row.try_get(0)?, row.try_get(2)?);
        Ok(format!("a row of {table} belongs to a row of {parent} that is not there"))
    };
    strays.into_iter().map(stray).collect()
}

fn pool(size: u32) -> SqlitePoolOptions {
    let pool = SqlitePoolOptions::new().max_connections(size).acquire_timeout(PATIENCE);
    // Never slow by the pool's own account, which would be a line of the log each time: who waits says so once.
    let pool = pool.acquire_slow_threshold(2 * PATIENCE);
    // A file does not hang up, and a database in memory must not be let go.
    pool.test_before_acquire(false).idle_timeout(None).max_lifetime(None)
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::archive::Record;
    use crate::run::RunState;
    use crate::run_index::{TurnBegun, TurnEnded};
    use crate::session::{NewSession, Owner};

    fn turn(run: &str, prompt: String) -> Record {
        Record::Begun(TurnBegun { run: run.to_owned(), prompt, ..TurnBegun::default() })
    }

    /// SQLite answers a full disk and its own limit on pages alike. The limit is the connection's, and goes with it.
    async fn fill(store: &Store) {
        sqlx::raw_sql("PRAGMA max_page_count = 1").execute(store.writing()).await.unwrap();
    }

    async fn empty(store: &Store) {
        sqlx::raw_sql("PRAGMA max_page_count = 1000000").execute(store.writing()).await.unwrap();
    }

    #[tokio::test]
    async fn it_works_on_with_less_memory() {
        let store = Store::in_memory().await.unwrap();
        for run in ["a", "b"] {
            let (writer, keeping) = store.writer();
            let mut keeper = JoinSet::new();
            keeper.spawn(keeping.run(CancellationToken::new()));
            writer.send(turn(run, String::new())).await.unwrap();
            drop(writer);
            assert_eq!(keeper.join_all().await[0].rows, 1);
            store.shrink().await.unwrap();
        }
        assert!(store.run("b", None).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_full_disk_is_an_error_and_then_it_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join(FILE)).await.unwrap();
        let ((writer, keeping), stop, mut tasks) = (store.writer(), CancellationToken::new(), JoinSet::new());
        tasks.spawn(keeping.run(stop.clone()));
        fill(&store).await;
        writer.send(turn("lost", "x".repeat(100_000))).await.unwrap();
        let lost = writer.flush().await;
        assert!(matches!(&lost, Err(StoreError::Lost(why)) if why.contains("full")), "{lost:?}");
        assert!(writer.disk_trouble().is_some_and(|why| why.contains("full")));
        fill(&store).await;
        let refused = writer.send_surely(turn("refused", "x".repeat(100_000))).await;
        assert!(matches!(&refused, Err(StoreError::Lost(why)) if why.contains("full")), "{refused:?}");
        let owner = Owner::local();
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
        empty(&store).await;
        store.try_write().await.unwrap();
        writer.send_surely(turn("kept", "x".repeat(100_000))).await.unwrap();
        assert_eq!(writer.disk_trouble(), None);
        store.session_begin(&new).await.unwrap();
        stop.cancel();
        let kept = tasks.join_next().await.unwrap().unwrap();
        assert_eq!((kept.rows, kept.lost), (1, 2));
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn end_of_a_turn_is_written_later_when_disk_was_full() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join(FILE)).await.unwrap();
        let ((writer, keeping), stop, mut tasks) = (store.writer(), CancellationToken::new(), JoinSet::new());
        tasks.spawn(keeping.run(stop.clone()));
        writer.send_surely(turn("r", String::new())).await.unwrap();
        fill(&store).await;
        let ended = TurnEnded { run: "r".to_owned(), answer: "x".repeat(60_000), ..TurnEnded::default() };
        writer.send(Record::Ended(ended)).await.unwrap();
        writer.flush().await.unwrap();
        assert!(writer.disk_trouble().is_some());
        assert_eq!(store.run("r", None).await.unwrap().unwrap().state, RunState::Queued, "not yet");
        empty(&store).await;
        writer.flush().await.unwrap();
        assert_eq!(store.run("r", None).await.unwrap().unwrap().state, RunState::Finished);
        assert_eq!(writer.disk_trouble(), None);
        stop.cancel();
        assert_eq!(tasks.join_next().await.unwrap().unwrap().lost, 0);
    }

    #[tokio::test]
    async fn a_transaction_that_is_dropped_never_was() {
        let folder = tempfile::tempdir().unwrap();
        for store in [Store::open(&folder.path().join(FILE)).await.unwrap(), Store::in_memory().await.unwrap()] {
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
