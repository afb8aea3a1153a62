//! A transaction that is always rolled back if it is not committed.
//!
//! SQLite rolls back by itself when a disk is full. sqlx's own transactions do not expect that: they roll back once more,
//! which fails, and leave a connection that cannot begin another transaction. So if a transaction was not committed, for
//! whatever reason, its connection is closed.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePool;
use sqlx::{Sqlite, SqliteConnection};

use crate::error::StoreError;

/// Rolled back when dropped, unless it was committed.
pub(crate) struct Transaction {
    connection: PoolConnection<Sqlite>,
    open: bool,
}

impl Transaction {
    /// Takes the write lock at once: a transaction that began with a read could not wait for the lock later.
    pub(crate) async fn begin(pool: &SqlitePool) -> Result<Self, StoreError> {
        let mut transaction = Self { connection: pool.acquire().await?, open: true };
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *transaction.connection).await?;
        Ok(transaction)
    }

    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        sqlx::raw_sql("COMMIT").execute(&mut *self.connection).await?;
        self.open = false;
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.open {
            self.connection.close_on_drop();
        }
    }
}

impl Deref for Transaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}
