//! Reads turns and events.

use serde::Serialize;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, FromRow, Row};
use trunkline_core::event::Event;

use crate::error::StoreError;
use crate::run_index::{TurnRow, count};
use crate::session::SessionKey;
use crate::store::Store;

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventRow {
    pub sequence: u64,
    /// Original size in bytes, if it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
    #[serde(flatten)]
    pub event: Event,
}

impl Store {
    /// Lists the turns of a session, the first one first. The caller has checked that the client owns it: see
    /// [`Store::session`].
    pub async fn turns(&self, session: &SessionKey) -> Result<Vec<TurnRow>, StoreError> {
        let query = format!("SELECT {} FROM turns WHERE session = ?1 ORDER BY id", TurnRow::COLUMNS);
        Ok(sqlx::query_as(AssertSqlSafe(query)).bind(&session.0).fetch_all(self.reading()).await?)
    }

    /// Returns the turn of a run.
    pub async fn turn(&self, run: &str) -> Result<Option<TurnRow>, StoreError> {
        let query = format!("SELECT {} FROM turns WHERE run = ?1", TurnRow::COLUMNS);
        Ok(sqlx::query_as(AssertSqlSafe(query)).bind(run).fetch_optional(self.reading()).await?)
    }

    /// Lists the events of a run in order, starting with the sequence number `from`.
    pub async fn events(&self, run: &str, from: u64) -> Result<Vec<EventRow>, StoreError> {
        let query = sqlx::query_as(
            "SELECT sequence, event, cut FROM events WHERE turn = (SELECT id FROM turns WHERE run = ?1) AND sequence >= ?2
             ORDER BY sequence",
        );
        Ok(query.bind(run).bind(i64::try_from(from).unwrap_or(i64::MAX)).fetch_all(self.reading()).await?)
    }
}

impl<'r> FromRow<'r, SqliteRow> for EventRow {
    fn from_row(row: &'r SqliteRow) -> sqlx::Result<Self> {
        let json: &str = row.try_get("event")?;
        // An event that only another version can parse is passed on as text.
        let event = serde_json::from_str(json).unwrap_or_else(|_| Event::Unknown { line: json.to_owned() });
        let sequence = count(row.try_get("sequence")?);
        Ok(Self { sequence, cut: row.try_get::<Option<i64>, _>("cut")?.map(count), event })
    }
}
