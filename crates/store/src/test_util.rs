//! Shortcuts for the tests of this and other crates, behind the feature `test-util`.
//!
//! In production, sessions and chains are written by the [`Writer`](crate::Writer) and deleted by
//! [`Store::prune`](crate::Store::prune).

use std::path::Path;

use trunkline_core::event::SessionId;

use crate::error::StoreError;
use crate::integrity;
use crate::session_state::HistoryHash;
use crate::session_state::{ClientId, SessionKey, SessionRow, first_words, path_text};
use crate::store::Store;
use crate::time::Time;

/// A session to be created.
#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    pub owner: &'a ClientId,
    pub model: &'a str,
    pub provider: &'a str,
    pub repo: &'a Path,
    /// The first message. Its first line becomes the title.
    pub begins: &'a str,
    /// The session this one was forked from.
    pub parent: Option<&'a SessionKey>,
}

impl Store {
    /// Lists everything that is wrong with the database, in SQLite's words. A damaged file is marked, as by the writer task.
    pub async fn check(&self) -> Result<Vec<String>, StoreError> {
        let damage = integrity::damage(&self.reading()).await?;
        if damage.is_empty() {
            return integrity::foreign_key_violations(&self.reading()).await;
        }
        self.connections().mark_suspect();
        Ok(damage)
    }

    /// Creates a session.
    pub async fn session_begin(&self, new: &NewSession<'_>) -> Result<SessionRow, StoreError> {
        let row = sqlx::query_as(
            "INSERT INTO sessions (id, owner, model, provider, repo, title, parent, created, used)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, (SELECT id FROM sessions WHERE id = ?7 AND owner = ?2), ?8, ?8) RETURNING *",
        )
        .bind(uuid::Uuid::now_v7().to_string())
        .bind(new.owner.as_str())
        .bind(new.model)
        .bind(new.provider)
        .bind(path_text(new.repo))
        .bind(first_words(new.begins))
        .bind(new.parent.map(|parent| parent.0.as_str()))
        .bind(Time::now().millis());
        Ok(row.fetch_one(&self.writing()).await?)
    }

    /// Notes that a turn of a session succeeded. False if there is no such session.
    pub async fn session_succeeded(&self, id: &SessionKey, native: Option<&SessionId>) -> Result<bool, StoreError> {
        let query = sqlx::query(
            "UPDATE sessions SET turns = turns + 1, used = max(used, ?2), native = coalesce(?3, native) WHERE id = ?1",
        );
        let native = native.map(|native| &*native.0);
        let done = query.bind(&id.0).bind(Time::now().millis()).bind(native).execute(&self.writing()).await?;
        Ok(done.rows_affected() > 0)
    }

    /// Deletes a session with its turns and chains. False if this client has no such session.
    pub async fn session_delete(&self, id: &SessionKey, owner: &ClientId) -> Result<bool, StoreError> {
        let query = sqlx::query("DELETE FROM sessions WHERE id = ?1 AND owner = ?2").bind(&id.0).bind(owner.as_str());
        Ok(query.execute(&self.writing()).await?.rows_affected() > 0)
    }

    /// Stores that a history of `messages` messages leads to a session. False if this client has no such session.
    pub async fn chain_remember(
        &self,
        owner: &ClientId,
        model: &str,
        hash: &HistoryHash,
        messages: usize,
        session: &SessionKey,
    ) -> Result<bool, StoreError> {
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
        Ok(query.execute(&self.writing()).await?.rows_affected() > 0)
    }
}
