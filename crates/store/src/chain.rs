//! Which session a client means that sends its whole history with every turn: one whose history has been seen before,
//! by a hash of it.

use serde_json::Value;

use crate::error::StoreError;
use crate::session::{Owner, SessionKey};
use crate::store::Store;
use crate::time::Time;

/// A hash of messages, one after the other.
pub type Hash = [u8; 32];

impl Store {
    /// Notes that a history of `messages` messages leads to a session of this owner's.
    pub async fn chain_remember(
        &self,
        owner: &Owner,
        model: &str,
        hash: &Hash,
        messages: usize,
        session: &SessionKey,
    ) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO chains (owner, model, hash, messages, created, session)
             SELECT ?1, ?2, ?3, ?4, ?5, id FROM sessions WHERE id = ?6 AND owner = ?1
             ON CONFLICT (owner, model, hash, session) DO UPDATE
             SET messages = excluded.messages, created = excluded.created",
        )
        .bind(owner.as_str())
        .bind(model)
        .bind(hash.as_slice())
        .bind(i64::try_from(messages).unwrap_or(i64::MAX))
        .bind(Time::now().millis())
        .bind(&session.0);
        let done = query.execute(self.writing()).await?;
        if done.rows_affected() == 0 { Err(StoreError::NoSuchSession) } else { Ok(()) }
    }

    /// The session that the first known one of these leads to, and which it was. Given longest first, that is the
    /// longest part of a history that has been seen before. One that leads to several sessions leads to none: the same
    /// words are not the same conversation.
    pub async fn chain_find(
        &self,
        owner: &Owner,
        model: &str,
        hashes: &[Hash],
    ) -> Result<Option<(usize, SessionKey)>, StoreError> {
        let list = Value::from_iter(hashes.iter().map(hex)).to_string();
        // CROSS JOIN: look each of them up, whatever the planner thinks of it.
        let query = sqlx::query_as(
            "SELECT given.key, min(chains.session) FROM json_each(?3) AS given CROSS JOIN chains
             ON chains.owner = ?1 AND chains.model = ?2 AND chains.hash = unhex(given.value)
             GROUP BY given.key HAVING count(*) = 1 ORDER BY given.key LIMIT 1",
        );
        let found: Option<(i64, String)> =
            query.bind(owner.as_str()).bind(model).bind(list).fetch_optional(self.reading()).await?;
        Ok(found.and_then(|(index, session)| Some((usize::try_from(index).ok()?, SessionKey(session)))))
    }
}

impl Store {
    /// Something is about to be said in a session: nothing leads to it any more. False where `hash` did not lead to it,
    /// because somebody else was first.
    pub async fn chain_take(
        &self,
        owner: &Owner,
        model: &str,
        hash: &Hash,
        session: &SessionKey,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query(
            "DELETE FROM chains WHERE session = ?4 AND EXISTS
             (SELECT 1 FROM chains WHERE owner = ?1 AND model = ?2 AND hash = ?3 AND session = ?4)",
        );
        let query = query.bind(owner.as_str()).bind(model).bind(hash.as_slice()).bind(&session.0);
        Ok(query.execute(self.writing()).await?.rows_affected() > 0)
    }

    /// The same for whoever names the session.
    pub async fn chains_forget(&self, session: &SessionKey) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM chains WHERE session = ?1").bind(&session.0).execute(self.writing()).await?;
        Ok(())
    }
}

fn hex(hash: &Hash) -> String {
    hash.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}
