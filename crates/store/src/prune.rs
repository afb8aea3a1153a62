//! Forgetting what is old, and giving its room back.

use serde::Serialize;

use crate::error::StoreError;
use crate::store::Store;
use crate::time::Time;

/// How much one transaction takes away: others want to write, too.
const AT_ONCE: i64 = 100;

/// What was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Pruned {
    pub sessions: u64,
    /// Those of the sessions, and those that had none.
    pub turns: u64,
    /// Messages of a bridge that are done with.
    pub messages: u64,
    /// Channels of a bridge that nobody talked in.
    pub channels: u64,
}

impl Store {
    /// Forgets the sessions that were last used before then, with all that belongs to them, turns without one, and what a
    /// channel of a bridge said that nobody talked in since. How far a channel was read stays: nothing is answered again.
    pub async fn prune(&self, before: Time) -> Result<Pruned, StoreError> {
        let mut pruned = Pruned::default();
        loop {
            let some = self.prune_some(before).await?;
            if some == Pruned::default() {
                break;
            }
            pruned.sessions += some.sessions;
            pruned.turns += some.turns;
            pruned.messages += some.messages;
            pruned.channels += some.channels;
        }
        self.give_room_back().await?;
        Ok(pruned)
    }

    /// Piece by piece, for the same reason.
    async fn give_room_back(&self) -> Result<(), StoreError> {
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

    /// The next few; nothing, once there is nothing left.
    async fn prune_some(&self, before: Time) -> Result<Pruned, StoreError> {
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
            let query = sqlx::query(query).bind(before.millis()).bind(AT_ONCE);
            *deleted = query.execute(&mut *transaction).await?.rows_affected();
        }
        // Whoever repeats a request that is forgotten asks anew.
        let query = sqlx::query("DELETE FROM repeats WHERE created < ?1").bind(before.millis());
        query.execute(&mut *transaction).await?;
        transaction.commit().await?;
        let [of_sessions, sessions, alone, messages, channels] = deleted;
        Ok(Pruned { sessions, turns: of_sessions + alone, messages, channels })
    }
}
