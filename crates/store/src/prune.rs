//! Deletes old sessions and turns, and frees their disk space.

use std::collections::HashSet;
use std::io;

use serde::Serialize;
use sqlx::AssertSqlSafe;

use crate::error::StoreError;
use crate::index::catch_up;
use crate::store::Store;
use crate::time::Time;

/// Sessions that one pass over the log deletes: each pass rewrites the segments that they are in.
const BATCH_SESSIONS: i64 = 1000;

/// The sessions to delete next: those that were not used for long, and in which no turn runs.
const OLD_SESSIONS: &str = "SELECT id FROM sessions WHERE used < ?1
    AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.id AND ended IS NULL)
    ORDER BY used, id LIMIT ?2";

/// The runs to delete next: those of these sessions, and old ones without a session.
const OLD_TURNS: &str = "EXISTS (SELECT 1 FROM sessions WHERE id = turns.session AND sessions.owner = turns.owner
        AND id IN (SELECT id FROM sessions AS old WHERE used < ?1
            AND NOT EXISTS (SELECT 1 FROM turns AS running WHERE running.session = old.id AND running.ended IS NULL)
            ORDER BY used, id LIMIT ?2))
    OR (ended IS NOT NULL AND begun < ?1 AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = turns.session AND sessions.owner = turns.owner))";

/// Number of rows that were deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Pruned {
    pub sessions: u64,
    /// Turns of the sessions, and turns without a session.
    pub turns: u64,
    /// Messages of a bridge that were answered or failed.
    pub messages: u64,
    /// Channels of a bridge without recent messages.
    pub channels: u64,
}

impl Store {
    /// Deletes sessions that were last used before the given time, with everything that belongs to them, as well as older
    /// turns without a session, handled messages of a bridge, and bindings of its unused channels. The cursor of a channel
    /// is kept, so that no message is answered again.
    pub async fn prune(&self, before: Time) -> Result<Pruned, StoreError> {
        let mut pruned = Pruned::default();
        loop {
            let batch = self.prune_batch(before).await?;
            if batch == Pruned::default() {
                break;
            }
            pruned.sessions += batch.sessions;
            pruned.turns += batch.turns;
        }
        self.connections().free_disk_space().await?;
        (pruned.messages, pruned.channels) = self.prune_bridge(before).await?;
        Ok(pruned)
    }

    /// Deletes the next batch. All counts are 0 once nothing is left.
    async fn prune_batch(&self, before: Time) -> Result<Pruned, StoreError> {
        let runs: Vec<String> = sqlx::query_scalar(AssertSqlSafe(format!("SELECT run FROM turns WHERE {OLD_TURNS}")))
            .bind(before.millis())
            .bind(BATCH_SESSIONS)
            .fetch_all(&self.indexed().await)
            .await?;
        let sessions: Vec<String> = sqlx::query_scalar(OLD_SESSIONS)
            .bind(before.millis())
            .bind(BATCH_SESSIONS)
            .fetch_all(&self.indexed().await)
            .await?;
        self.delete_runs(runs.iter().chain(&sessions)).await?;
        let mut transaction = self.transaction().await?;
        for session in &sessions {
            sqlx::query("DELETE FROM sessions WHERE id = ?1").bind(session).execute(&mut *transaction).await?;
        }
        // A request that is repeated later starts a new run.
        let query = sqlx::query("DELETE FROM repeats WHERE created < ?1").bind(before.millis());
        query.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Pruned { sessions: sessions.len() as u64, turns: runs.len() as u64, ..Pruned::default() })
    }

    /// Deletes a run that has ended, from the log and from the index.
    pub async fn delete_run(&self, run: &str) -> Result<(), StoreError> {
        self.delete_runs(&[run.to_owned()]).await
    }

    /// Deletes runs from the log, and then from the index: if this process is killed in between, the index must not be
    /// rebuilt with deleted runs.
    pub(crate) async fn delete_runs<'a>(
        &self,
        runs: impl IntoIterator<Item = &'a String> + Clone,
    ) -> Result<(), StoreError> {
        let (left, gone) = self.forget_in_log(runs.clone().into_iter()).await?;
        let mut transaction = self.transaction().await?;
        let rows = [
            ("DELETE FROM turns WHERE run = ?1", runs.into_iter().collect::<Vec<_>>()),
            ("INSERT OR IGNORE INTO forgotten (run) VALUES (?1)", left.iter().collect()),
            ("DELETE FROM forgotten WHERE run = ?1", gone.iter().collect()),
        ];
        for (query, runs) in rows {
            for run in runs {
                sqlx::query(query).bind(run).execute(&mut *transaction).await?;
            }
        }
        transaction.commit().await
    }

    /// Deletes the records of these runs, and of those that could not be deleted earlier. Returns the runs that have records
    /// in a segment that is being written, which the next call deletes, and the earlier ones that have none any more.
    async fn forget_in_log(
        &self,
        runs: impl Iterator<Item = &String>,
    ) -> Result<(HashSet<String>, Vec<String>), StoreError> {
        let Some(log) = self.log().cloned() else { return Ok(Default::default()) };
        let mut earlier: Vec<String> =
            sqlx::query_scalar("SELECT run FROM forgotten").fetch_all(&self.indexed().await).await?;
        let deleted: HashSet<String> = runs.cloned().chain(earlier.iter().cloned()).collect();
        if deleted.is_empty() {
            return Ok(Default::default());
        }
        let indexed = catch_up::indexed(self).await?;
        let rewritten = tokio::task::spawn_blocking(move || log.forget(&deleted, &indexed)).await;
        let left = rewritten.map_err(io::Error::other).flatten().map_err(StoreError::Log)?;
        earlier.retain(|run| !left.contains(run));
        Ok((left, earlier))
    }
}
