//! Rows of the tables of a bridge.

use serde_json::Value;
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};

use crate::session_state::SessionKey;
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
