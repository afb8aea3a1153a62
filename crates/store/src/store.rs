//! The database itself: one connection that writes, a few that read.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{Row, Sqlite, Transaction};

use crate::error::StoreError;
use crate::opening;
use crate::schema;

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
}

impl Store {
    /// Opens the database, or makes it. A broken one is moved aside, loudly; one of a newer version is refused.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        opening::prepare(path).await?;
        let options = opening::options().filename(path);
        let writing = pool(1).connect_with(options.clone()).await?;
        let reading = pool(READERS).connect_lazy_with(options.pragma("query_only", "on"));
        Ok(Self { writing, reading })
    }

    /// One that ends with the last of its clones, for tests.
    pub async fn in_memory() -> Result<Self, StoreError> {
        let options = opening::options().in_memory(true);
        // A second connection would be a second database.
        let one = pool(1).min_connections(1).connect_with(options).await?;
        let migrated = schema::migrate(&mut *one.acquire().await?).await?;
        migrated.expect("a new database is no newer than we are");
        Ok(Self { writing: one.clone(), reading: one })
    }

    /// Waits for what is going on and closes the file. Not a must: nothing that was answered is lost without it.
    pub async fn close(&self) {
        self.reading.close().await;
        self.writing.close().await;
    }

    /// Everything that is wrong with the file, in SQLite's words; nothing if it is well. Reads all of it.
    pub async fn check(&self) -> Result<Vec<String>, StoreError> {
        let rows: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(20)").fetch_all(self.reading()).await?;
        let mut wrong: Vec<String> = rows.into_iter().filter(|row| row != "ok").collect();
        for row in sqlx::query("PRAGMA foreign_key_check").fetch_all(self.reading()).await? {
            let (table, parent): (String, String) = (row.try_get(0)?, row.try_get(2)?);
            wrong.push(format!("a row of {table} belongs to a row of {parent} that is not there"));
        }
        Ok(wrong)
    }

    pub(crate) fn reading(&self) -> &SqlitePool {
        &self.reading
    }

    /// For single statements.
    pub(crate) fn writing(&self) -> &SqlitePool {
        &self.writing
    }

    /// For several statements. It takes the write lock at once: one that began by reading could not wait for it later.
    pub(crate) async fn transaction(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        Ok(self.writing.begin_with("BEGIN IMMEDIATE").await?)
    }
}

fn pool(size: u32) -> SqlitePoolOptions {
    let pool = SqlitePoolOptions::new().max_connections(size).acquire_timeout(PATIENCE);
    // A file does not hang up, and a database in memory must not be let go.
    pool.test_before_acquire(false).idle_timeout(None).max_lifetime(None)
}
