//! Moves runs and sessions of earlier versions into the log, once.
//!
//! Before version 3 of the database, the database was the record of runs, each run had an event log of its own
//! (`STATE/runs/<first five characters>/<run>.jsonl`), and a journal (`STATE/journal/<id>/{0,1}`) held what the database
//! did not have yet.
//!
//! ```text
//! journals ──▶ old tables ──▶ segments of the process "00000000-upgrade" ──▶ index (as after a kill)
//!              event logs ──▶
//! ```
//!
//! All of it happens in the transaction of the migration. The segments get their names before the commit, so whenever this
//! process is killed, the next one either starts over or finds the upgrade complete. The old files are removed after the
//! first [`catch_up`](crate::index::catch_up).

mod events;
mod export;
mod journal;
mod old_files;
mod segments;

use std::fs;
use std::io;
use std::path::Path;

use sqlx::SqliteConnection;

use crate::error::StoreError;
use crate::log::LogFolder;
use old_files::{LOG_PREFIX_CHARS, OLD_JOURNALS, OLD_LOGS, PROCESS, if_exists};
use segments::UpgradeSegments;

/// Number of runs and sessions that were moved.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Upgraded {
    pub(crate) runs: u64,
    pub(crate) sessions: u64,
}

/// Writes everything to the log that the tables of version 2, and the files of that version, have. The connection is in a
/// transaction.
pub(crate) async fn upgrade(connection: &mut SqliteConnection, state: &Path) -> Result<Upgraded, StoreError> {
    journal::replay(connection, &state.join(OLD_JOURNALS)).await?;
    let mut segments = UpgradeSegments::create(&LogFolder::of_state(state)).map_err(StoreError::Log)?;
    let runs = export::runs(connection, &state.join(OLD_LOGS), &mut segments).await?;
    let sessions = export::sessions(connection, &mut segments).await?;
    segments.finish().map_err(StoreError::Log)?;
    Ok(Upgraded { runs, sessions })
}

/// Removes the files that have been upgraded. Files that were not are left alone: their database is gone.
pub(crate) fn remove_old_files(state: &Path) {
    if !LogFolder::of_state(state).segment_path(PROCESS, 0).exists() {
        return;
    }
    let (logs, journals) = (state.join(OLD_LOGS), state.join(OLD_JOURNALS));
    for (folder, removed) in [(&logs, remove_logs(&logs)), (&journals, fs::remove_dir_all(&journals))] {
        if let Err(error) = if_exists(removed) {
            tracing::warn!(path = %folder.display(), %error, "cannot remove files of an earlier version");
        }
    }
}

/// Removes the event logs of runs. Gateways have other files in the same folder.
fn remove_logs(logs: &Path) -> io::Result<()> {
    for entry in fs::read_dir(logs)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.len() != LOG_PREFIX_CHARS || !name.iter().all(|byte| byte.is_ascii_hexdigit()) {
            continue;
        }
        for log in fs::read_dir(&path)? {
            let log = log?.path();
            if log.extension().is_some_and(|extension| extension == "jsonl") {
                fs::remove_file(log)?;
            }
        }
        // Not empty if it is something else.
        let _ = fs::remove_dir(path);
    }
    Ok(())
}
