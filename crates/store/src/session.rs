//! Sessions: our own name for a conversation, whose it is, and what the provider calls it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};
use trunkline_core::event::SessionId;

use crate::error::StoreError;
use crate::store::Store;
use crate::time::Time;

/// How much of a first message is kept, to know a session by.
const TITLE: usize = 60;

/// Our own name for a session, as clients know it. What the provider calls it is a [`SessionId`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionKey(pub String);

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose a session is; opaque here. Nobody sees another's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(String);

impl Owner {
    /// Such as the digest of a key; never the key itself.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The person at this machine.
    #[must_use]
    pub fn local() -> Self {
        Self::new("local")
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    pub owner: &'a Owner,
    pub model: &'a str,
    pub provider: &'a str,
    pub repo: &'a Path,
    /// The first message; its first words become the title.
    pub begins: &'a str,
    /// The session this one was forked from.
    pub parent: Option<&'a SessionKey>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionRow {
    pub id: SessionKey,
    pub owner: Owner,
    pub model: String,
    pub provider: String,
    pub repo: PathBuf,
    /// What to resume by; none until a turn has succeeded.
    pub native: Option<SessionId>,
    pub title: String,
    pub parent: Option<SessionKey>,
    pub created: Time,
    pub used: Time,
    /// How many have succeeded.
    pub turns: u64,
}

impl SessionRow {
    /// For [`Filter::before`]: what comes after this one in a list.
    #[must_use]
    pub fn position(&self) -> (Time, SessionKey) {
        (self.used, self.id.clone())
    }
}

/// Which sessions; what is not named does not matter.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub owner: Option<Owner>,
    /// Any of these, as they are spelled.
    pub repos: Option<Vec<PathBuf>>,
    pub model: Option<String>,
    /// How many at most.
    pub limit: Option<u32>,
    /// Only those further down than this: see [`SessionRow::position`].
    pub before: Option<(Time, SessionKey)>,
}

impl Store {
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

    /// A session, if there is one and it is this owner's.
    pub async fn session(&self, id: &SessionKey, owner: &Owner) -> Result<Option<SessionRow>, StoreError> {
        let row = sqlx::query_as("SELECT * FROM sessions WHERE id = ?1 AND owner = ?2").bind(&id.0).bind(&owner.0);
        Ok(row.fetch_optional(self.reading()).await?)
    }

    /// The session that the provider knows by this name; the one used last, if there are several.
    pub async fn session_by_native(
        &self,
        provider: &str,
        native: &SessionId,
        owner: &Owner,
    ) -> Result<Option<SessionRow>, StoreError> {
        let row = sqlx::query_as(
            "SELECT * FROM sessions WHERE native = ?1 AND provider = ?2 AND owner = ?3 ORDER BY used DESC, id DESC LIMIT 1",
        );
        Ok(row.bind(&native.0).bind(provider).bind(&owner.0).fetch_optional(self.reading()).await?)
    }

    /// Sessions whose names begin like this, anybody's: for a person who types one.
    pub async fn sessions_beginning(&self, prefix: &str, limit: u32) -> Result<Vec<SessionRow>, StoreError> {
        let rows = sqlx::query_as("SELECT * FROM sessions WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT ?2");
        Ok(rows.bind(prefix).bind(limit).fetch_all(self.reading()).await?)
    }

    /// A turn has succeeded: from now on the session can be resumed by the provider's name for it.
    pub async fn session_succeeded(&self, id: &SessionKey, native: Option<&SessionId>) -> Result<(), StoreError> {
        let query = sqlx::query(
            "UPDATE sessions SET turns = turns + 1, used = max(used, ?2), native = coalesce(?3, native) WHERE id = ?1",
        );
        let native = native.map(|native| native.0.as_str());
        let done = query.bind(&id.0).bind(Time::now().millis()).bind(native).execute(self.writing()).await?;
        if done.rows_affected() == 0 { Err(StoreError::NoSuchSession) } else { Ok(()) }
    }

    /// The one used last comes first.
    pub async fn sessions(&self, filter: &Filter) -> Result<Vec<SessionRow>, StoreError> {
        let rows = sqlx::query_as(
            "SELECT * FROM sessions
             WHERE (?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR repo IN (SELECT value FROM json_each(?2))) AND (?3 IS NULL OR model = ?3)
               AND (?4 IS NULL OR (used, id) < (?4, ?5))
             ORDER BY used DESC, id DESC LIMIT ?6",
        )
        .bind(filter.owner.as_ref().map(Owner::as_str))
        .bind(filter.repos.as_deref().map(texts_json))
        .bind(&filter.model)
        .bind(filter.before.as_ref().map(|(used, _)| used.millis()))
        .bind(filter.before.as_ref().map(|(_, id)| id.0.as_str()))
        .bind(filter.limit.map_or(-1, i64::from));
        Ok(rows.fetch_all(self.reading()).await?)
    }

    /// The repositories that sessions are about, as they were spelled at the time.
    pub async fn session_repos(&self) -> Result<Vec<PathBuf>, StoreError> {
        let repos: Vec<String> =
            sqlx::query_scalar("SELECT DISTINCT repo FROM sessions").fetch_all(self.reading()).await?;
        Ok(repos.into_iter().map(PathBuf::from).collect())
    }

    /// Forgets a session with its turns and chains; false if this owner has none of that name.
    pub async fn session_delete(&self, id: &SessionKey, owner: &Owner) -> Result<bool, StoreError> {
        let query = sqlx::query("DELETE FROM sessions WHERE id = ?1 AND owner = ?2").bind(&id.0).bind(&owner.0);
        Ok(query.execute(self.writing()).await?.rows_affected() > 0)
    }
}

impl<'r> FromRow<'r, SqliteRow> for SessionRow {
    fn from_row(row: &'r SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: SessionKey(row.try_get("id")?),
            owner: Owner(row.try_get("owner")?),
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

/// A path that is not text is kept as near as text comes to it: it is there to be shown and compared.
pub(crate) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Paths as a JSON array of texts, for a condition on several of them.
fn texts_json(paths: &[PathBuf]) -> String {
    serde_json::Value::from_iter(paths.iter().map(|path| path_text(path))).to_string()
}

/// The first line that has anything in it, as far as it is short.
pub(crate) fn first_words(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match line.char_indices().nth(TITLE) {
        None => line.to_owned(),
        Some(_) => line.chars().take(TITLE - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_first_line_with_something_in_it() {
        let long = "x".repeat(61);
        let cut = "x".repeat(59) + "…";
        let exact = "é".repeat(60);
        for (text, title) in [("", ""), (" \n\n  Hello \nworld", "Hello"), (&long, cut.as_str()), (&exact, &exact)] {
            assert_eq!(first_words(text), title, "{text:?}");
        }
    }
}
