//! State of a bridge to a chat service: read cursors, messages to be answered, and the session of each channel.
//!
//! A *place* is a channel of the service.

use serde_json::Value;
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};

use crate::error::StoreError;
use crate::session_state::SessionKey;
use crate::store::Store;
use crate::time::Time;

/// State of a received message. It only moves forward, but answering may start again after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxState {
    Received,
    Answering,
    Answered,
    Failed,
}

impl InboxState {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Answering => "answering",
            Self::Answered => "answered",
            Self::Failed => "failed",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Received, Self::Answering, Self::Answered, Self::Failed].into_iter().find(|state| state.name() == name)
    }
}

/// A received message.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxRow {
    pub place: String,
    pub message: String,
    pub payload: Value,
    pub state: InboxState,
    pub detail: Option<Value>,
    pub received: Time,
}

/// Session and model that a channel uses.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Binding {
    /// None, also once the session has been deleted.
    pub session: Option<SessionKey>,
    pub model: Option<String>,
    /// Further data of the bridge.
    pub more: Value,
}

impl Store {
    /// Returns the last message of a place that was read.
    pub async fn cursor(&self, place: &str) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_scalar("SELECT message FROM cursors WHERE place = ?1").bind(place);
        Ok(query.fetch_optional(self.reading()).await?)
    }

    /// Sets the last message of a place that was read. May move it back.
    pub async fn set_cursor(&self, place: &str, message: &str) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO cursors (place, message, changed) VALUES (?1, ?2, ?3)
             ON CONFLICT (place) DO UPDATE SET message = excluded.message, changed = excluded.changed",
        );
        query.bind(place).bind(message).bind(Time::now().millis()).execute(self.writing()).await?;
        Ok(())
    }

    /// Stores a message and advances the cursor of its place, both or neither. False if the message was stored before. Ids
    /// are numbers, as Discord's are: a longer one is later.
    pub async fn inbox_add(&self, place: &str, message: &str, payload: &Value) -> Result<bool, StoreError> {
        let now = Time::now().millis();
        let mut transaction = self.transaction().await?;
        let added = sqlx::query(
            "INSERT INTO inbox (message, place, payload, received, changed) VALUES (?1, ?2, ?3, ?4, ?4)
             ON CONFLICT (message) DO NOTHING",
        );
        let added = added.bind(message).bind(place).bind(payload.to_string()).bind(now);
        let added = added.execute(&mut *transaction).await?.rows_affected() > 0;
        let cursor = sqlx::query(
            "INSERT INTO cursors (place, message, changed) VALUES (?1, ?2, ?3)
             ON CONFLICT (place) DO UPDATE SET message = excluded.message, changed = excluded.changed
             WHERE (length(excluded.message), excluded.message) > (length(cursors.message), cursors.message)",
        );
        cursor.bind(place).bind(message).bind(now).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(added)
    }

    /// Lists the messages that are neither answered nor failed, in order of their ids: of one place, or of all.
    pub async fn inbox_pending(&self, place: Option<&str>) -> Result<Vec<InboxRow>, StoreError> {
        let query = sqlx::query_as(
            "SELECT * FROM inbox WHERE state IN ('received', 'answering') AND (?1 IS NULL OR place = ?1)
             ORDER BY length(message), message",
        );
        Ok(query.bind(place).fetch_all(self.reading()).await?)
    }

    /// Moves a message to a later state. False if it does not exist or its state is later already. An answered or failed
    /// message stays so, and its payload is deleted.
    pub async fn inbox_state(
        &self,
        message: &str,
        state: InboxState,
        detail: Option<&Value>,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query(
            "UPDATE inbox SET state = ?2, detail = coalesce(?3, detail), changed = ?4,
                 payload = CASE WHEN ?2 IN ('answered', 'failed') THEN '{}' ELSE payload END WHERE message = ?1
             AND (state = 'received' OR (state = 'answering' AND ?2 <> 'received'))",
        );
        let query = query.bind(message).bind(state.name()).bind(detail.map(Value::to_string));
        Ok(query.bind(Time::now().millis()).execute(self.writing()).await?.rows_affected() > 0)
    }

    /// Returns the binding of a place.
    pub async fn binding(&self, place: &str) -> Result<Option<Binding>, StoreError> {
        let query = sqlx::query_as("SELECT session, model, more FROM bindings WHERE place = ?1").bind(place);
        Ok(query.fetch_optional(self.reading()).await?)
    }

    /// Sets the binding of a place.
    pub async fn set_binding(&self, place: &str, binding: &Binding) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO bindings (place, session, model, more, changed)
             VALUES (?1, (SELECT id FROM sessions WHERE id = ?2), ?3, ?4, ?5)
             ON CONFLICT (place) DO UPDATE SET session = excluded.session, model = excluded.model,
                 more = excluded.more, changed = excluded.changed",
        )
        .bind(place)
        .bind(binding.session.as_ref().map(|session| session.0.as_str()))
        .bind(&binding.model)
        .bind(binding.more.to_string())
        .bind(Time::now().millis());
        query.execute(self.writing()).await?;
        Ok(())
    }

    /// Lists the places with a binding whose names start with `prefix`.
    pub async fn bound_places(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let query =
            sqlx::query_scalar("SELECT place FROM bindings WHERE substr(place, 1, length(?1)) = ?1 ORDER BY place");
        Ok(query.bind(prefix).fetch_all(self.reading()).await?)
    }
}

impl<'r> FromRow<'r, SqliteRow> for InboxRow {
    fn from_row(row: &'r SqliteRow) -> sqlx::Result<Self> {
        let state: String = row.try_get("state")?;
        Ok(Self {
            place: row.try_get("place")?,
            message: row.try_get("message")?,
            payload: json(row.try_get("payload")?)?,
            state: InboxState::from_name(&state).ok_or_else(|| sqlx::Error::Decode(state.into()))?,
            detail: row.try_get::<Option<String>, _>("detail")?.map(json).transpose()?,
            received: Time::from_millis(row.try_get("received")?),
        })
    }
}

impl<'r> FromRow<'r, SqliteRow> for Binding {
    fn from_row(row: &'r SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            session: row.try_get::<Option<String>, _>("session")?.map(SessionKey),
            model: row.try_get("model")?,
            more: json(row.try_get("more")?)?,
        })
    }
}

fn json(text: String) -> sqlx::Result<Value> {
    serde_json::from_str(&text).map_err(|error| sqlx::Error::Decode(error.into()))
}
