//! Exports the archive as JSON lines: one object for each turn, with its events.

use std::io::Write;

use serde::Serialize;
use sqlx::{AssertSqlSafe, FromRow, Row};

use super::read::EventRow;
use crate::error::StoreError;
use crate::run_index::TurnRow;
use crate::session::{ClientId, SessionKey};
use crate::store::Store;
use crate::time::Time;

/// Turns that are read at once. Bounds the memory of an export, which is as long as the archive.
const PAGE_TURNS: i64 = 64;

/// Filter for [`Store::export`]. A field that is `None` matches every turn.
#[derive(Debug, Clone, Default)]
pub struct ExportFilter {
    pub owner: Option<ClientId>,
    pub session: Option<SessionKey>,
    /// Only turns that began then or later.
    pub since: Option<Time>,
}

#[derive(Serialize)]
struct ExportLine<'a> {
    #[serde(flatten)]
    turn: &'a TurnRow,
    events: Vec<EventRow>,
}

impl Store {
    /// Writes the turns in the order in which they began. Returns how many were written.
    pub async fn export(&self, filter: &ExportFilter, to: &mut impl Write) -> Result<u64, StoreError> {
        let query = format!(
            "SELECT id, {} FROM turns WHERE id > ?1 AND (?2 IS NULL OR owner = ?2) AND (?3 IS NULL OR session = ?3)
             AND (?4 IS NULL OR begun >= ?4) ORDER BY id LIMIT ?5",
            TurnRow::COLUMNS
        );
        let (mut last, mut written) = (0_i64, 0);
        loop {
            let rows = sqlx::query(AssertSqlSafe(query.as_str()))
                .bind(last)
                .bind(filter.owner.as_ref().map(ClientId::as_str))
                .bind(filter.session.as_ref().map(|session| session.0.as_str()))
                .bind(filter.since.map(Time::millis))
                .bind(PAGE_TURNS)
                .fetch_all(self.reading())
                .await?;
            let Some(end) = rows.last() else { return Ok(written) };
            last = end.try_get("id")?;
            for row in &rows {
                let turn = TurnRow::from_row(row)?;
                let events = self.events(&turn.run, 0).await?;
                serde_json::to_writer(&mut *to, &ExportLine { turn: &turn, events })
                    .map_err(|error| StoreError::Write(error.into()))?;
                to.write_all(b"\n").map_err(StoreError::Write)?;
                written += 1;
            }
        }
    }
}
