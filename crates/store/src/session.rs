//! Sessions: the gateway's id of a conversation, the client it belongs to, and the provider's id for resuming it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};
use trunkline_core::event::SessionId;

use crate::error::StoreError;
use crate::store::Store;
use crate::time::Time;

/// Limit of a title.
const MAX_TITLE_CHARS: usize = 60;

/// The gateway's id of a session, as clients know it. The provider's id is a [`SessionId`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionKey(pub String);

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The client that a session or run belongs to. Opaque here. A client never sees those of another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientId(String);

impl ClientId {
    /// A client with this id, such as the digest of an API key. Never the key itself.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The user of this machine.
    #[must_use]
    pub fn local() -> Self {
        Self::new("local")
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

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

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionRow {
    pub id: SessionKey,
    pub owner: ClientId,
    pub model: String,
    pub provider: String,
    pub repo: PathBuf,
    /// The provider's id for resuming it. None until a turn has succeeded.
    pub native: Option<SessionId>,
    pub title: String,
    pub parent: Option<SessionKey>,
    pub created: Time,
    pub used: Time,
    /// Number of turns that succeeded.
    pub turns: u64,
}

impl SessionRow {
    /// Position for [`SessionFilter::before`], to list the sessions after this one.
    #[must_use]
    pub fn position(&self) -> (Time, SessionKey) {
        (self.used, self.id.clone())
    }
}

/// Filter for [`Store::sessions`]. A field that is `None` matches every session.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    pub owner: Option<ClientId>,
    /// Any of these paths, compared as text.
    pub repos: Option<Vec<PathBuf>>,
    pub model: Option<String>,
    /// Limit of the number of sessions.
    pub limit: Option<u32>,
    /// Only sessions that are listed after this [position](SessionRow::position).
    pub before: Option<(Time, SessionKey)>,
}

impl Store {
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
        Ok(row.fetch_one(self.writing()).await?)
    }

    /// Returns a session, if it exists and belongs to this client.
    pub async fn session(&self, id: &SessionKey, owner: &ClientId) -> Result<Option<SessionRow>, StoreError> {
        let row = sqlx::query_as("SELECT * FROM sessions WHERE id = ?1 AND owner = ?2").bind(&id.0).bind(&owner.0);
        Ok(row.fetch_optional(self.reading()).await?)
    }

    /// Returns the session with this id of the provider. If there are several, the one used last.
    pub async fn session_by_native(
        &self,
        provider: &str,
        native: &SessionId,
        owner: &ClientId,
    ) -> Result<Option<SessionRow>, StoreError> {
        let row = sqlx::query_as(
            "SELECT * FROM sessions WHERE native = ?1 AND provider = ?2 AND owner = ?3 ORDER BY used DESC, id DESC LIMIT 1",
        );
        Ok(row.bind(&native.0).bind(provider).bind(&owner.0).fetch_optional(self.reading()).await?)
    }

    /// Lists the sessions of all clients whose ids start with `prefix`, for a user who types one.
    pub async fn sessions_beginning(&self, prefix: &str, limit: u32) -> Result<Vec<SessionRow>, StoreError> {
        let rows = sqlx::query_as("SELECT * FROM sessions WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT ?2");
        Ok(rows.bind(prefix).bind(limit).fetch_all(self.reading()).await?)
    }

    /// Notes that a turn succeeded. From now on the session can be resumed by the provider's id.
    pub async fn session_succeeded(&self, id: &SessionKey, native: Option<&SessionId>) -> Result<(), StoreError> {
        let query = sqlx::query(
            "UPDATE sessions SET turns = turns + 1, used = max(used, ?2), native = coalesce(?3, native) WHERE id = ?1",
        );
        let native = native.map(|native| native.0.as_str());
        let done = query.bind(&id.0).bind(Time::now().millis()).bind(native).execute(self.writing()).await?;
        if done.rows_affected() == 0 { Err(StoreError::NoSuchSession) } else { Ok(()) }
    }

    /// Lists sessions, the one used last first.
    pub async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        let rows = sqlx::query_as(
            "SELECT * FROM sessions
             WHERE (?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR repo IN (SELECT value FROM json_each(?2))) AND (?3 IS NULL OR model = ?3)
               AND (?4 IS NULL OR (used, id) < (?4, ?5))
             ORDER BY used DESC, id DESC LIMIT ?6",
        )
        .bind(filter.owner.as_ref().map(ClientId::as_str))
        .bind(filter.repos.as_deref().map(texts_json))
        .bind(&filter.model)
        .bind(filter.before.as_ref().map(|(used, _)| used.millis()))
        .bind(filter.before.as_ref().map(|(_, id)| id.0.as_str()))
        .bind(filter.limit.map_or(-1, i64::from));
        Ok(rows.fetch_all(self.reading()).await?)
    }

    /// Lists the repositories of all sessions, as they were spelled at the time.
    pub async fn session_repos(&self) -> Result<Vec<PathBuf>, StoreError> {
        let repos: Vec<String> =
            sqlx::query_scalar("SELECT DISTINCT repo FROM sessions").fetch_all(self.reading()).await?;
        Ok(repos.into_iter().map(PathBuf::from).collect())
    }

    /// Deletes a session with its turns and chains. False if this client has no such session.
    pub async fn session_delete(&self, id: &SessionKey, owner: &ClientId) -> Result<bool, StoreError> {
        let query = sqlx::query("DELETE FROM sessions WHERE id = ?1 AND owner = ?2").bind(&id.0).bind(&owner.0);
        Ok(query.execute(self.writing()).await?.rows_affected() > 0)
    }
}

impl<'r> FromRow<'r, SqliteRow> for SessionRow {
    fn from_row(row: &'r SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: SessionKey(row.try_get("id")?),
            owner: ClientId(row.try_get("owner")?),
            model: row.try_get("model")?,
            provider: row.try_get("provider")?,
            repo: PathBuf::from(row.try_get::<String, _>("repo")?),
            native: row.try_get::<Option<String>, _>("native")?.map(SessionId),
            title: row.try_get("title")?,
            parent: row.try_get::<Option<String>, _>("parent")?.map(SessionKey),
            created: Time::from_millis(row.try_get("created")?),
            used: Time::from_millis(row.try_get("used")?),
            turns: u64::try_from(row.try_get::<i64, _>("turns")?).unwrap_or(0),
        })
    }
}

/// Converts a path to text, lossily if it is not UTF-8: it is only displayed and compared.
pub(crate) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Encodes paths as a JSON array, for a condition on several of them.
fn texts_json(paths: &[PathBuf]) -> String {
    serde_json::Value::from_iter(paths.iter().map(|path| path_text(path))).to_string()
}

/// Returns the first line that is not blank, cut to the length of a title.
pub(crate) fn first_words(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match line.char_indices().nth(MAX_TITLE_CHARS) {
        None => line.to_owned(),
        Some(_) => line.chars().take(MAX_TITLE_CHARS - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_is_the_first_line_that_is_not_blank() {
        let long = "x".repeat(61);
        let cut = "x".repeat(59) + "…";
        let exact = "é".repeat(60);
        for (text, title) in [("", ""), (" \n\n  Hello \nworld", "Hello"), (&long, cut.as_str()), (&exact, &exact)] {
            assert_eq!(first_words(text), title, "{text:?}");
        }
    }
}
