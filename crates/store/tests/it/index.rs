//! Tests how often the index is written.

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use trunkline_store::{DATABASE_FILE, HeadCondition, RunFilter, RunState, StoreError};

use crate::fixture::{TestProcess, accepted, end, state};

/// Minimum time between two transactions.
const INTERVAL: Duration = Duration::from_millis(200);

#[tokio::test]
async fn index_is_written_at_most_once_in_200_ms() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let begun = Instant::now();
    let mut runs: usize = 0;
    while process.feed.transactions() < 3 {
        let run = format!("{runs:06}");
        process.write(&run, accepted(&run, None));
        process.write(&run, end());
        runs += 1;
        tokio::task::yield_now().await;
    }
    let (transactions, elapsed) = (process.feed.transactions(), begun.elapsed());
    let most = elapsed.as_millis() / INTERVAL.as_millis() + 1;
    assert!(u128::from(transactions) <= most, "{transactions} transactions in {elapsed:?} for {runs} runs");
    let store = process.end().await;
    let filter = RunFilter { limit: u32::MAX, ..RunFilter::default() };
    assert_eq!(store.runs(&filter).await.unwrap().len(), runs);
}

#[tokio::test]
async fn flush_writes_the_index_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    for count in 1..20 {
        let run = count.to_string();
        process.write(&run, accepted(&run, None));
        process.feed.flush().await.unwrap();
        assert_eq!(process.feed.transactions(), count);
    }
    process.feed.flush().await.unwrap();
    assert_eq!(process.feed.transactions(), 19, "there is nothing to write");
    let feed = process.feed.clone();
    process.end().await;
    assert!(matches!(feed.flush().await, Err(StoreError::Closed)));
}

/// Makes the database refuse new rows of a table, by a trigger `refuse`. Returns a connection to it.
async fn refusing_inserts(folder: &Path, table: &str) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(folder.join(DATABASE_FILE));
    let mut connection = options.connect().await.unwrap();
    let trigger = format!("CREATE TRIGGER refuse BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'refused'); END");
    sqlx::raw_sql(sqlx::AssertSqlSafe(trigger)).execute(&mut connection).await.unwrap();
    connection
}

/// Rows that wait for a database that cannot be written do not take more and more memory: the log has them.
#[tokio::test]
async fn index_is_complete_when_the_database_could_not_be_written_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let mut other = refusing_inserts(folder.path(), "turns").await;
    process.write("open", accepted("open", None));
    for at in 0..5000 {
        let run = format!("{at:06}");
        process.write(&run, accepted(&run, None));
        process.write(&run, end());
    }
    process.feed.flush().await.unwrap_err();
    let filter = RunFilter { limit: u32::MAX, ..RunFilter::default() };
    assert!(process.store.runs(&filter).await.unwrap().len() < 4200);
    sqlx::raw_sql("DROP TRIGGER refuse").execute(&mut other).await.unwrap();
    process.write("last", accepted("last", None));
    process.feed.flush().await.unwrap();
    process.write("open", end());
    let store = process.end().await;
    let runs = store.runs(&filter).await.unwrap();
    assert_eq!(runs.len(), 5002);
    assert_eq!(runs.iter().filter(|run| run.state == RunState::Finished).count(), 5001);
}

#[tokio::test]
async fn callers_get_an_answer_when_the_last_rows_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    refusing_inserts(folder.path(), "sessions").await;
    let in_flight = process.feed.add_session(state("s", 1, &[]), HeadCondition::default());
    let (store, feed) = (process.store.clone(), process.feed.clone());
    process.end().await;
    assert!(matches!(in_flight.committed().await, Err(StoreError::Closed)));
    drop((store, feed));
}
