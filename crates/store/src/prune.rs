//! Deletes old sessions and turns, and frees their disk space.

use serde::Serialize;

use crate::error::StoreError;
use crate::store::Store;
use crate::time::Time;

/// Rows that one transaction deletes from a table. Keeps transactions short, so that other writers get their turn.
const BATCH_ROWS: i64 = 100;

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
            pruned.messages += batch.messages;
            pruned.channels += batch.channels;
        }
        self.free_disk_space().await?;
        Ok(pruned)
    }

    /// Truncates the file in small steps, for the same reason.
    async fn free_disk_space(&self) -> Result<(), StoreError> {
        let mut free = i64::MAX;
        loop {
            let now: i64 = sqlx::query_scalar("PRAGMA freelist_count").fetch_one(self.writing()).await?;
            if now == 0 || now >= free {
                break;
            }
            free = now;
            sqlx::raw_sql("PRAGMA incremental_vacuum(1000)").execute(self.writing()).await?;
        }
        sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(self.writing()).await?;
        Ok(())
    }

    /// Deletes the next batch. All counts are 0 once nothing is left.
    async fn prune_batch(&self, before: Time) -> Result<Pruned, StoreError> {
        let mut transaction = self.transaction().await?;
        let mut deleted = [0; 5];
        let queries = [
            "DELETE FROM turns WHERE session IN (SELECT id FROM sessions WHERE used < ?1 ORDER BY used, id LIMIT ?2)",
            "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE used < ?1 ORDER BY used, id LIMIT ?2)",
            "DELETE FROM turns WHERE id IN (SELECT id FROM turns WHERE begun < ?1 AND session IS NULL LIMIT ?2)",
            "DELETE FROM inbox WHERE message IN (SELECT message FROM inbox WHERE changed < ?1
             AND state IN ('answered', 'failed') LIMIT ?2)",
            "DELETE FROM bindings WHERE place IN (SELECT place FROM bindings WHERE changed < ?1 LIMIT ?2)",
        ];
        for (query, deleted) in queries.into_iter().zip(&mut deleted) {
            let query = sqlx::query(query).bind(before.millis()).bind(BATCH_ROWS);
            *deleted = query.execute(&mut *transaction).await?.rows_affected();
        }
        // A request that is repeated later starts a new run.
        let query = sqlx::query("DELETE FROM repeats WHERE created < ?1").bind(before.millis());
        query.execute(&mut *transaction).await?;
        transaction.commit().await?;
        let [of_sessions, sessions, alone, messages, channels] = deleted;
        Ok(Pruned { sessions, turns: of_sessions + alone, messages, channels })
    }
}
