//! Events of a run of an earlier version.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use sqlx::{Row, SqliteConnection};
use trunkline_core::event::Event;

use super::old_files::{LOG_PREFIX_CHARS, if_exists};
use super::segments::UpgradeSegments;
use crate::error::StoreError;
use crate::log::{LogRecord, RunLogEntry};
use crate::run_index::count;

/// The events of a run that have been written.
#[derive(Debug, Default)]
pub(super) struct WrittenEvents {
    /// Sequence number of the next event.
    pub(super) next: u64,
    /// Whether the outcome of the run is among them.
    pub(super) has_end: bool,
}

impl WrittenEvents {
    pub(super) fn write(
        &mut self,
        run: &str,
        entry: RunLogEntry,
        segments: &mut UpgradeSegments,
    ) -> Result<(), StoreError> {
        self.next = entry.seq + 1;
        self.has_end |= entry.event.is_end();
        segments.write(run, &LogRecord::Event(Box::new(entry))).map_err(StoreError::Log)
    }

    /// Writes the events of the run's own log. None are written if there is no such log.
    pub(super) fn copy_log(
        &mut self,
        run: &str,
        logs: &Path,
        segments: &mut UpgradeSegments,
    ) -> Result<(), StoreError> {
        // The subfolder is the first part of the name. Other names never had a log.
        let is_id = run.len() == 36 && run.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if !is_id {
            return Ok(());
        }
        let path = logs.join(&run[..LOG_PREFIX_CHARS]).join(format!("{run}.jsonl"));
        let Some(file) = if_exists(File::open(path)).map_err(StoreError::Log)? else { return Ok(()) };
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        while read_line(&mut reader, &mut line).map_err(StoreError::Log)? {
            // The last line may be incomplete.
            if let Ok(entry) = serde_json::from_slice(&line) {
                self.write(run, entry, segments)?;
            }
        }
        Ok(())
    }

    /// Writes the events that the database has.
    pub(super) async fn copy_rows(
        &mut self,
        run: &str,
        begun: u64,
        connection: &mut SqliteConnection,
        segments: &mut UpgradeSegments,
    ) -> Result<(), StoreError> {
        let query = "SELECT sequence, event FROM events WHERE turn = (SELECT id FROM turns WHERE run = ?1)
            ORDER BY sequence";
        for row in sqlx::query(query).bind(run).fetch_all(connection).await? {
            let json: &str = row.try_get("event")?;
            // An event that only another version can parse is passed on as text.
            let event = serde_json::from_str(json).unwrap_or_else(|_| Event::Unknown { line: json.to_owned() });
            let entry = RunLogEntry { seq: count(row.try_get("sequence")?), at: begun, by: None, event };
            self.write(run, entry, segments)?;
        }
        Ok(())
    }
}

/// Reads a line into `line`. False at the end of the file.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    Ok(reader.read_until(b'\n', line)? > 0)
}
