//! Chains: find the session of a client that sends its whole history with every turn, by a hash of that history.

use serde_json::Value;

use crate::error::StoreError;
use crate::session_state::{ClientId, HistoryHash, SessionKey};
use crate::store::Store;

impl Store {
    /// Returns the session that the first known hash leads to, and the index of that hash. With the longest history first,
    /// this finds the longest known part of a history. A history that leads to several sessions leads to none: the same
    /// messages may belong to different conversations.
    pub async fn chain_find(
        &self,
        owner: &ClientId,
        model: &str,
        hashes: &[HistoryHash],
    ) -> Result<Option<(usize, SessionKey)>, StoreError> {
        let list = Value::from_iter(hashes.iter().map(hex)).to_string();
        // CROSS JOIN makes the planner look up each hash.
        let query = sqlx::query_as(
            "SELECT given.key, min(chains.session) FROM json_each(?3) AS given CROSS JOIN chains
             ON chains.owner = ?1 AND chains.model = ?2 AND chains.hash = unhex(given.value)
             GROUP BY given.key HAVING count(*) = 1 ORDER BY given.key LIMIT 1",
        );
        let found: Option<(i64, String)> =
            query.bind(owner.as_str()).bind(model).bind(list).fetch_optional(&self.indexed().await).await?;
        Ok(found.and_then(|(index, session)| Some((usize::try_from(index).ok()?, SessionKey(session)))))
    }

    /// Removes all chains of a session before a turn starts in it. False if `hash` does not lead to the session, because
    /// another turn was first.
    pub async fn chain_take(
        &self,
        owner: &ClientId,
        model: &str,
        hash: &HistoryHash,
        session: &SessionKey,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query(
            "DELETE FROM chains WHERE session = ?4 AND EXISTS
             (SELECT 1 FROM chains WHERE owner = ?1 AND model = ?2 AND hash = ?3 AND session = ?4)",
        );
        let query = query.bind(owner.as_str()).bind(model).bind(hash.as_slice()).bind(&session.0);
        Ok(query.execute(&self.writing()).await?.rows_affected() > 0)
    }

    /// As [`chain_take`](Self::chain_take), for a client that names the session.
    pub async fn chains_forget(&self, session: &SessionKey) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM chains WHERE session = ?1").bind(&session.0).execute(&self.writing()).await?;
        Ok(())
    }
}

fn hex(hash: &HistoryHash) -> String {
    hash.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}
