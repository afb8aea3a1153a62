//! Deletes the oldest runs beyond a number or a size, and compresses old segments.

use std::time::Duration;

use sqlx::AssertSqlSafe;

use crate::error::StoreError;
use crate::index::catch_up;
use crate::store::Store;

/// Runs that one pass over the log deletes: each pass rewrites the segments that they are in.
const BATCH_RUNS: u64 = 10_000;

/// Runs that nothing needs any more: not the last successful run of a session and those after it, from which the session
/// continues, and no run whose worktree was kept.
const UNNEEDED: &str = "ended IS NOT NULL AND json_extract(workspace, '$.path') IS NULL AND (
    NOT EXISTS (SELECT 1 FROM sessions WHERE id = turns.session AND sessions.owner = turns.owner)
    OR run < (SELECT max(run) FROM turns AS later
        WHERE later.session = turns.session AND later.owner = turns.owner AND later.outcome = 'ok'))";

/// Limits of what is kept. None is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogLimits {
    /// Number of runs.
    pub runs: Option<u64>,
    /// Size of the log on disk.
    pub bytes: Option<u64>,
}

impl Store {
    /// Deletes the oldest runs until the limits are kept, or only runs are left that a session or a worktree needs. Returns
    /// how many were deleted.
    pub async fn delete_excess(&self, limits: LogLimits) -> Result<u64, StoreError> {
        let mut deleted = 0;
        loop {
            let (runs, bytes) = (self.run_count().await?, self.log_size()?);
            let too_many = limits.runs.map_or(0, |most| runs.saturating_sub(most));
            // How many runs take how many bytes is not known, so they are deleted by tenths.
            let too_large = if limits.bytes.is_some_and(|most| bytes > most) { runs.div_ceil(10) } else { 0 };
            let count = self.delete_oldest(too_many.max(too_large).min(BATCH_RUNS)).await?;
            deleted += count;
            // Records in a segment that is being written are deleted later.
            let shrunk = self.log_size()? < bytes;
            if count == 0 || (too_many <= count && !shrunk) {
                break;
            }
        }
        if deleted > 0 {
            self.connections().free_disk_space().await?;
        }
        Ok(deleted)
    }

    /// Compresses segments of the log that were not written to for `age`. Returns the number of bytes that were saved.
    pub async fn compress_log(&self, age: Duration) -> Result<u64, StoreError> {
        let Some(log) = self.log().cloned() else { return Ok(0) };
        let indexed = catch_up::indexed(self).await?;
        let compressed = tokio::task::spawn_blocking(move || log.compress_old(age, &indexed)).await;
        compressed.map_err(std::io::Error::other).flatten().map_err(StoreError::Log)
    }

    async fn run_count(&self) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM turns").fetch_one(&self.indexed().await).await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Size of all segments in bytes.
    fn log_size(&self) -> Result<u64, StoreError> {
        self.log().map_or(Ok(0), |log| log.size().map_err(StoreError::Log))
    }

    async fn delete_oldest(&self, count: u64) -> Result<u64, StoreError> {
        if count == 0 {
            return Ok(0);
        }
        let query = format!("SELECT run FROM turns WHERE {UNNEEDED} ORDER BY run LIMIT ?1");
        let limit = i64::try_from(count).unwrap_or(i64::MAX);
        let runs: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(query)).bind(limit).fetch_all(&self.indexed().await).await?;
        self.delete_runs(&runs).await?;
        Ok(runs.len() as u64)
    }
}
