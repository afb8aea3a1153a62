//! Access to the database from outside the gateway: lock it, query it, damage it.

use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::runtime::Runtime;

/// A connection to the database, separate from the gateway's.
pub(crate) struct Database {
    runtime: Runtime,
    connection: Option<SqliteConnection>,
}

impl Database {
    pub(crate) fn open(path: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = SqliteConnectOptions::new().filename(path).disable_statement_logging();
        let connection = runtime.block_on(options.connect()).unwrap();
        Self { runtime, connection: Some(connection) }
    }

    /// Takes the write lock, so that no other connection can write.
    pub(crate) fn lock(&mut self) {
        self.run("BEGIN IMMEDIATE");
    }

    pub(crate) fn unlock(&mut self) {
        self.run("ROLLBACK");
    }

    pub(crate) fn run(&mut self, statement: &'static str) {
        let connection = self.connection.as_mut().unwrap();
        self.runtime.block_on(sqlx::raw_sql(statement).execute(connection)).unwrap();
    }

    /// Makes every insert into a table and every update of it fail.
    pub(crate) fn refuse(&mut self, table: &str, name: &str) {
        for what in ["INSERT", "UPDATE"] {
            self.run_built(format!(
                "CREATE TRIGGER {name}_{what} BEFORE {what} ON {table} BEGIN SELECT RAISE(ABORT, 'no room'); END"
            ));
        }
    }

    /// Reverts [`refuse`](Self::refuse).
    pub(crate) fn allow(&mut self, name: &str) {
        for what in ["INSERT", "UPDATE"] {
            self.run_built(format!("DROP TRIGGER {name}_{what}"));
        }
    }

    fn run_built(&mut self, statement: String) {
        let connection = self.connection.as_mut().unwrap();
        let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(statement));
        self.runtime.block_on(statement.execute(connection)).unwrap();
    }

    /// The first column of all rows of a query.
    pub(crate) fn all(&mut self, query: &'static str) -> Vec<String> {
        let connection = self.connection.as_mut().unwrap();
        self.runtime.block_on(sqlx::query_scalar(query).fetch_all(connection)).unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // An error here only means that the connection is closed already.
            let _ = self.runtime.block_on(connection.close());
        }
    }
}
