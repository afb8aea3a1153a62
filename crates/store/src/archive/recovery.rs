//! Opens a database, and writes the records that killed processes left in their [journals](super::journal).

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use super::journal::{JournalLine, journals_of};
use super::pending::PendingRecord;
use super::write::{RecordOrigin, write};
use crate::error::StoreError;
use crate::run_index::{TurnBegun, TurnContinued};
use crate::session::SessionKey;
use crate::store::Store;

/// Recovered records that one transaction takes.
const BATCH_RECORDS: usize = 256;

impl Store {
    /// Opens the database, or creates it, and writes the records that killed processes left in their journals. A damaged
    /// database, or one of a newer version, is refused and left unchanged.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Self::connect(path).await?;
        store.recover().await;
        Ok(store)
    }

    /// Writes the records of processes that were killed since the database was opened, as [`open`](Self::open) does.
    pub async fn recover(&self) {
        if let Some(path) = self.path() {
            recover(self, path).await;
        }
    }
}

/// Recovers all journals without an owner. One that cannot be recovered is left to the next process.
async fn recover(store: &Store, database: &Path) {
    let Some(journals) = journals_of(database) else { return };
    let folders = match fs::read_dir(&journals) {
        Ok(folders) => folders,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => return tracing::warn!(path = %journals.display(), %error, "cannot read the journals"),
    };
    for path in folders.flatten().map(|entry| entry.path()) {
        match recover_journal(store, &path).await {
            Ok(0) => {}
            Ok(records) => tracing::info!(records, "recovered records of a process that was killed"),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot recover a journal; it is left in place")
            }
        }
    }
}

/// Returns the number of records that were recovered.
async fn recover_journal(store: &Store, path: &Path) -> io::Result<usize> {
    let lock = match File::open(path) {
        Ok(lock) if lock.try_lock().is_ok() => lock,
        // Its writer is alive, or another process recovers it.
        Ok(_) => return Ok(0),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut records = read_records(path)?;
    clear_chains_of_open_sessions(&mut records);
    for batch in records.chunks(BATCH_RECORDS) {
        write(store, batch, RecordOrigin::Recovered).await.map_err(io::Error::other)?;
    }
    fs::remove_dir_all(path)?;
    drop(lock);
    Ok(records.len())
}

/// Reads the records of both files, in the order in which they were queued.
fn read_records(path: &Path) -> io::Result<Vec<PendingRecord>> {
    let (mut lines, mut unread) = (Vec::new(), Vec::new());
    for file in 0..2 {
        let text = match fs::read(path.join(file.to_string())) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            match serde_json::from_slice::<JournalLine<PendingRecord>>(line) {
                Ok(line) => lines.push(line),
                Err(error) if line.ends_with(b"\n") => unread.push(error),
                // The last line may be incomplete.
                Err(_) => {}
            }
        }
    }
    if let Some(error) = unread.first() {
        tracing::warn!(records = unread.len(), %error, "cannot read records of another version; they are dropped");
    }
    lines.sort_by_key(|line| line.count);
    Ok(lines.into_iter().map(|line| line.row).collect())
}

/// Removes the chains of sessions in which a turn was running when the process was killed: their histories are not the
/// latest any more.
fn clear_chains_of_open_sessions(records: &mut [PendingRecord]) {
    let mut open = HashMap::new();
    for record in &*records {
        match record {
            PendingRecord::Begun(TurnBegun { run, session: Some(session), .. })
            | PendingRecord::Continued(TurnContinued { run, session, .. }) => {
                open.insert(run.clone(), session.clone());
            }
            PendingRecord::Ended(ended) => {
                open.remove(&ended.run);
            }
            PendingRecord::Begun(_)
            | PendingRecord::Session { .. }
            | PendingRecord::Started(_)
            | PendingRecord::Workspace(_)
            | PendingRecord::Event(_) => {}
        }
    }
    let in_use: HashSet<SessionKey> = open.into_values().collect();
    for record in records {
        if let PendingRecord::Session { turn, .. } = record
            && in_use.contains(&turn.id)
        {
            turn.chains.clear();
        }
    }
}
