//! The archive, read.

use std::time::Duration;

use serde::Serialize;
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};
use trunkline_core::event::{Event, Usage};

use super::{Outcome, Surface};
use crate::error::StoreError;
use crate::session::{Owner, SessionKey};
use crate::store::Store;
use crate::time::Time;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TurnRow {
    pub run: String,
    pub session: Option<SessionKey>,
    pub owner: Owner,
    /// None if it is one that only a later version knows.
    pub surface: Option<Surface>,
    pub place: String,
    pub model: String,
    pub prompt: String,
    pub begun: Time,
    pub provider: Option<String>,
    /// None while it runs; and for good, if the gateway ended before it did.
    pub outcome: Option<Outcome>,
    pub answer: Option<String>,
    pub usage: Usage,
    #[serde(rename = "duration_ms", serialize_with = "as_millis")]
    pub duration: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventRow {
    pub sequence: u64,
    /// How many bytes it had, if this is not all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
    #[serde(flatten)]
    pub event: Event,
}

impl Store {
    /// The turns of a session, the first one first. Whose it is, the caller has seen to: see [`Store::session`].
    pub async fn turns(&self, session: &SessionKey) -> Result<Vec<TurnRow>, StoreError> {
        let query = sqlx::query_as("SELECT * FROM turns WHERE session = ?1 ORDER BY id").bind(&session.0);
        Ok(query.fetch_all(self.reading()).await?)
    }

    pub async fn turn(&self, run: &str) -> Result<Option<TurnRow>, StoreError> {
        Ok(sqlx::query_as("SELECT * FROM turns WHERE run = ?1").bind(run).fetch_optional(self.reading()).await?)
    }

    /// The events of a run, in order, beginning with this number.
    pub async fn events(&self, run: &str, from: u64) -> Result<Vec<EventRow>, StoreError> {
        let query = sqlx::query_as(
            "SELECT sequence, event, cut FROM events WHERE turn = (SELECT id FROM turns WHERE run = ?1) AND sequence >= ?2
             ORDER BY sequence",
        );
        Ok(query.bind(run).bind(i64::try_from(from).unwrap_or(i64::MAX)).fetch_all(self.reading()).await?)
    }
}

impl<'r> FromRow<'r, SqliteRow> for TurnRow {
    fn from_row(row: &'r SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            run: row.try_get("run")?,
            session: row.try_get::<Option<String>, _>("session")?.map(SessionKey),
            owner: Owner::new(row.try_get::<String, _>("owner")?),
            surface: Surface::from_name(row.try_get("surface")?),
            place: row.try_get("place")?,
            model: row.try_get("model")?,
            prompt: row.try_get("prompt")?,
            begun: Time::from_millis(row.try_get("begun")?),
            provider: row.try_get("provider")?,
            outcome: row.try_get::<Option<&str>, _>("outcome")?.map(Outcome::from_name),
            answer: row.try_get("answer")?,
            usage: Usage {
                input_tokens: count(row.try_get("input_tokens")?),
                output_tokens: count(row.try_get("output_tokens")?),
                cached_tokens: count(row.try_get("cached_tokens")?),
                estimated: row.try_get("estimated")?,
            },
            duration: row.try_get::<Option<i64>, _>("duration")?.map(|millis| Duration::from_millis(count(millis))),
        })
    }
}

impl<'r> FromRow<'r, SqliteRow> for EventRow {
    fn from_row(row: &'r SqliteRow) -> sqlx::Result<Self> {
        let json: &str = row.try_get("event")?;
        // One of another version, which this one cannot read, is shown as it is.
        let event = serde_json::from_str(json).unwrap_or_else(|_| Event::Unknown { line: json.to_owned() });
        let sequence = count(row.try_get("sequence")?);
        Ok(Self { sequence, cut: row.try_get::<Option<i64>, _>("cut")?.map(count), event })
    }
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn as_millis<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
}
