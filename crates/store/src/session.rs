//! Queries of sessions.

use std::path::PathBuf;

use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};
use trunkline_core::event::SessionId;

use crate::error::StoreError;
use crate::session_state::{ClientId, SessionKey, SessionRow, path_text};
use crate::store::Store;
use crate::time::Time;

/// Filter for [`Store::sessions`]. A field that is `None` matches every session.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    pub owner: Option<ClientId>,
    /// Any of these paths, compared as text.
    pub repos: Option<Vec<PathBuf>>,
    pub model: Option<String>,
    /// Limit of the number of sessions.
    pub limit: Option<u32>,
}

impl Store {
    /// Returns a session, if it exists and belongs to this client.
    pub async fn session(&self, id: &SessionKey, owner: &ClientId) -> Result<Option<SessionRow>, StoreError> {
        let row =
            sqlx::query_as("SELECT * FROM sessions WHERE id = ?1 AND owner = ?2").bind(&id.0).bind(owner.as_str());
        Ok(row.fetch_optional(&self.indexed().await).await?)
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
        Ok(row.bind(&*native.0).bind(provider).bind(owner.as_str()).fetch_optional(&self.indexed().await).await?)
    }

    /// Lists the sessions of all clients whose ids start with `prefix`, for a user who types one.
    pub async fn sessions_beginning(&self, prefix: &str, limit: u32) -> Result<Vec<SessionRow>, StoreError> {
        let rows = sqlx::query_as("SELECT * FROM sessions WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT ?2");
        Ok(rows.bind(prefix).bind(limit).fetch_all(&self.indexed().await).await?)
    }

    /// Lists sessions, the one used last first.
    pub async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        let rows = sqlx::query_as(
            "SELECT * FROM sessions
             WHERE (?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR repo IN (SELECT value FROM json_each(?2))) AND (?3 IS NULL OR model = ?3)
             ORDER BY used DESC, id DESC LIMIT ?4",
        )
        .bind(filter.owner.as_ref().map(ClientId::as_str))
        .bind(filter.repos.as_deref().map(texts_json))
        .bind(&filter.model)
        .bind(filter.limit.map_or(-1, i64::from));
        Ok(rows.fetch_all(&self.indexed().await).await?)
    }

    /// Lists the repositories of all sessions, as they were spelled at the time.
    pub async fn session_repos(&self) -> Result<Vec<PathBuf>, StoreError> {
        let repos: Vec<String> =
            sqlx::query_scalar("SELECT DISTINCT repo FROM sessions").fetch_all(&self.indexed().await).await?;
        Ok(repos.into_iter().map(PathBuf::from).collect())
    }
}

impl<'r> FromRow<'r, SqliteRow> for SessionRow {
    fn from_row(row: &'r SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: SessionKey(row.try_get("id")?),
            owner: ClientId::new(row.try_get::<String, _>("owner")?),
            model: row.try_get("model")?,
            provider: row.try_get("provider")?,
            repo: PathBuf::from(row.try_get::<String, _>("repo")?),
            native: row.try_get::<Option<String>, _>("native")?.map(|native| SessionId(native.into())),
            title: row.try_get("title")?,
            parent: row.try_get::<Option<String>, _>("parent")?.map(SessionKey),
            created: Time::from_millis(row.try_get("created")?),
            used: Time::from_millis(row.try_get("used")?),
            turns: u64::try_from(row.try_get::<i64, _>("turns")?).unwrap_or(0),
        })
    }
}

/// Encodes paths as a JSON array, for a condition on several of them.
fn texts_json(paths: &[PathBuf]) -> String {
    serde_json::Value::from_iter(paths.iter().map(|path| path_text(path))).to_string()
}
