//! The journal: queued records on disk until they are in the database, in case this process is killed before that.
//!
//! A record is written to the page cache, without a sync. That takes microseconds and survives the end of this process,
//! however it ends, but not a power failure.
//!
//! A journal is a folder with two files that take turns: when one is full, the other is used, provided that all its
//! records are in the database. A file whose records are all in the database is truncated. The folder is locked, which
//! tells other processes that its owner is alive. The next process to open the database after a kill writes the records
//! ([`recovery`](super::recovery)).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use super::pending::PendingRecord;

/// Name of the folder with all journals, next to the database.
const FOLDER_NAME: &str = "journal";

/// Size of a file at which the other one is used, if that is empty.
const FULL_FILE_BYTES: u64 = 1024 * 1024;

/// Limit of a file. Further records are only queued. Reached only if the database has taken nothing for a long time.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Capacity of the buffer that is kept for the next record.
const MAX_IDLE_BUFFER_BYTES: usize = 64 * 1024;

/// The journal of one writer.
#[derive(Debug)]
pub(super) struct Journal {
    /// The folder with all journals. None for a database in memory, which has no journal.
    journals: Option<PathBuf>,
    files: Mutex<JournalFiles>,
}

#[derive(Debug, Default)]
struct JournalFiles {
    /// Created with the first record.
    folder: Option<JournalFolder>,
    files: [JournalFile; 2],
    current: usize,
    /// Number of the next record.
    count: u64,
    buffer: Vec<u8>,
    /// Whether the last write failed. Only the first failure is logged.
    failing: bool,
}

#[derive(Debug)]
struct JournalFolder {
    path: PathBuf,
    /// Released by the kernel when this process ends.
    _lock: File,
}

#[derive(Debug, Default)]
struct JournalFile {
    file: Option<File>,
    written: u64,
    /// Number of its records that are not in the database yet.
    waiting: u64,
}

/// Number of records in each of the two files.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct JournalCounts([u64; 2]);

impl JournalCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, others)| *ours += others);
    }
}

/// A line of a journal file.
#[derive(Serialize, Deserialize)]
pub(super) struct JournalLine<R> {
    /// Position of the record in the order of the queue.
    pub(super) count: u64,
    pub(super) row: R,
}

impl Journal {
    /// The journal of a database. The folder is created with the first record.
    pub(super) fn of(database: Option<&Path>) -> Self {
        Self { journals: database.and_then(journals_of), files: Mutex::default() }
    }

    /// Writes a record to the journal and passes it to `send`, with the file that it is in. `send` is called under the
    /// lock, so that records are queued in the order of the journal.
    pub(super) fn append(&self, record: PendingRecord, send: impl FnOnce(PendingRecord, JournalCounts)) {
        let mut files = self.lock();
        let mut counts = JournalCounts::default();
        if let (Some(journals), false) = (&self.journals, matches!(record, PendingRecord::Event(_))) {
            match files.append(journals, &record) {
                Ok(Some(file)) => counts.0[file] = 1,
                Ok(None) => files.log_failure(journals, &"the journal is full"),
                Err(error) => files.log_failure(journals, &error),
            }
        }
        send(record, counts);
    }

    /// Removes records that are in the database, or lost.
    pub(super) fn settle(&self, counts: JournalCounts) {
        let mut files = self.lock();
        for (file, count) in files.files.iter_mut().zip(counts.0) {
            file.waiting -= count;
            if count > 0 && file.waiting == 0 {
                file.clear();
            }
        }
    }

    /// Removes the journal, unless it has records that are not in the database. The next process to open the database
    /// writes those.
    pub(super) fn close(&self) {
        let mut files = self.lock();
        let empty = files.files.iter().all(|file| file.waiting == 0);
        if let Some(folder) = files.folder.take().filter(|_| empty)
            && let Err(error) = fs::remove_dir_all(&folder.path)
        {
            tracing::warn!(path = %folder.path.display(), %error, "cannot remove an empty journal");
        }
    }

    fn lock(&self) -> MutexGuard<'_, JournalFiles> {
        self.files.lock().expect("no panic while holding the lock")
    }
}

impl JournalFiles {
    fn log_failure(&mut self, journals: &Path, why: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.failing, true) {
            let path = journals.display();
            tracing::error!(%path, %why, "cannot write to the journal: queued records would be lost in a crash");
        }
    }

    /// Returns the file that the record was written to. None if there is no room.
    fn append(&mut self, journals: &Path, record: &PendingRecord) -> io::Result<Option<usize>> {
        if self.files[self.current].written >= FULL_FILE_BYTES && self.files[1 - self.current].waiting == 0 {
            self.current = 1 - self.current;
        }
        let current = self.current;
        if self.files[current].written >= MAX_FILE_BYTES {
            return Ok(None);
        }
        let folder = match &mut self.folder {
            Some(folder) => folder,
            None => self.folder.insert(JournalFolder::create(journals)?),
        };
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, &JournalLine { count: self.count, row: record })?;
        self.buffer.push(b'\n');
        let journal = &mut self.files[current];
        let file = match &mut journal.file {
            Some(file) => file,
            None => journal.file.insert(create(&folder.path.join(current.to_string()))?),
        };
        file.write_all_at(&self.buffer, journal.written)?;
        journal.written += self.buffer.len() as u64;
        // A very long record is rare. The buffer must be empty to shrink below its content.
        self.buffer.clear();
        self.buffer.shrink_to(MAX_IDLE_BUFFER_BYTES);
        journal.waiting += 1;
        self.count += 1;
        self.failing = false;
        Ok(Some(current))
    }
}

impl JournalFile {
    fn clear(&mut self) {
        let Some(file) = &self.file else { return };
        match file.set_len(0) {
            Ok(()) => self.written = 0,
            // Writing a record twice has no effect. Only the room is lost.
            Err(error) => tracing::warn!(%error, "cannot truncate a journal file"),
        }
    }
}

impl JournalFolder {
    /// Creates a folder and locks it. Before it is locked, another process may take it for the journal of a dead process
    /// and remove it. Then another one is created.
    fn create(journals: &Path) -> io::Result<Self> {
        loop {
            let path = journals.join(uuid::Uuid::now_v7().to_string());
            DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            let lock = match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened?,
            };
            lock.lock()?;
            if lock.metadata()?.nlink() > 0 {
                return Ok(Self { path, _lock: lock });
            }
        }
    }
}

/// The folder with all journals of a database.
pub(super) fn journals_of(database: &Path) -> Option<PathBuf> {
    Some(database.parent()?.join(FOLDER_NAME))
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_index::TurnStarted;
    use crate::time::Time;

    #[test]
    fn buffer_is_shrunk_after_a_long_record() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::of(Some(&folder.path().join("db")));
        for length in [10, 1_000_000, 10] {
            let started = TurnStarted { run: "r".repeat(length), provider: String::new(), time: Time::now() };
            journal.append(PendingRecord::Started(started), |_, counts| assert_eq!(counts.0, [1, 0]));
            assert!(journal.lock().buffer.capacity() <= MAX_IDLE_BUFFER_BYTES, "{length}");
        }
    }
}
