//! Records on their way into the database, on disk at once: whoever is killed in between leaves them to the next to open it.
//!
//! A plain write into the page cache: that survives the end of this process, however it comes, and costs microseconds. Two
//! files in turn, each emptied when all that is in it is in the database, too. A lock on their folder says that they are
//! somebody's.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use super::row::Row;
use super::write::{Age, write};
use crate::run_index::{TurnBegun, TurnContinued};
use crate::session::SessionKey;
use crate::store::Store;

/// The folder's name, beside the database.
const FOLDER: &str = "journal";

/// When a file has this many bytes, the other one is next, if it is empty.
const FULL: u64 = 1024 * 1024;

/// What comes after this many bytes is not on disk before it is in the database: that takes no more for a long time.
const MOST: u64 = 16 * 1024 * 1024;

/// How much memory stays for the next record.
const KEPT: usize = 64 * 1024;

/// How many rows that were left are put into one transaction.
const BATCH: usize = 256;

/// What waits.
#[derive(Debug)]
pub(super) struct Journal {
    /// None of a database in memory.
    beside: Option<PathBuf>,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// Made with the first record.
    folder: Option<Folder>,
    pages: [Page; 2],
    current: usize,
    count: u64,
    buffer: Vec<u8>,
    /// Something could not be written, which was said.
    failing: bool,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Unlocked with the end of this process.
    _lock: File,
}

#[derive(Debug, Default)]
struct Page {
    file: Option<File>,
    written: u64,
    /// How many of its records are not in the database.
    waiting: u64,
}

/// How many records of each file.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Noted([u64; 2]);

impl Noted {
    pub(super) fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, others)| *ours += others);
    }
}

#[derive(Serialize, Deserialize)]
struct Line<R> {
    /// In the order they were sent in.
    count: u64,
    row: R,
}

impl Journal {
    pub(super) fn beside(database: Option<&Path>) -> Self {
        Self { beside: database.and_then(folder), pages: Mutex::default() }
    }

    /// Writes a record down. `sent` is called before another is, so that records are sent in the order of the journal.
    pub(super) fn note(&self, row: Row, sent: impl FnOnce(Row, Noted)) {
        let mut pages = self.lock();
        let mut noted = Noted::default();
        if let (Some(beside), false) = (&self.beside, matches!(row, Row::Event(_))) {
            match pages.append(beside, &row) {
                Ok(Some(page)) => noted.0[page] = 1,
                Ok(None) => pages.fails(beside, &"there is too much already"),
                Err(error) => pages.fails(beside, &error),
            }
        }
        sent(row, noted);
    }

    /// These are in the database.
    pub(super) fn settle(&self, noted: Noted) {
        let mut pages = self.lock();
        for (page, count) in pages.pages.iter_mut().zip(noted.0) {
            page.waiting -= count;
            if count > 0 && page.waiting == 0 {
                page.clear();
            }
        }
    }

    /// Nothing more comes. What waits is left to the next.
    pub(super) fn close(&self) {
        let mut pages = self.lock();
        let empty = pages.pages.iter().all(|page| page.waiting == 0);
        if let Some(folder) = pages.folder.take().filter(|_| empty)
            && let Err(error) = fs::remove_dir_all(&folder.path)
        {
            tracing::warn!(path = %folder.path.display(), %error, "an empty journal is left behind");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().expect("no panic while holding the lock")
    }
}

impl Pages {
    fn fails(&mut self, beside: &Path, why: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.failing, true) {
            let path = beside.display();
            tracing::error!(%path, %why, "records cannot be written down before they are in the database");
        }
    }

    /// The file it is in; none if there is no room.
    fn append(&mut self, beside: &Path, row: &Row) -> io::Result<Option<usize>> {
        if self.pages[self.current].written >= FULL && self.pages[1 - self.current].waiting == 0 {
            self.current = 1 - self.current;
        }
        let current = self.current;
        if self.pages[current].written >= MOST {
            return Ok(None);
        }
        let folder = match &mut self.folder {
            Some(folder) => folder,
            None => self.folder.insert(Folder::make(beside)?),
        };
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, &Line { count: self.count, row })?;
        self.buffer.push(b'\n');
        let page = &mut self.pages[current];
        let file = match &mut page.file {
            Some(file) => file,
            None => page.file.insert(create(&folder.path.join(current.to_string()))?),
        };
        file.write_all_at(&self.buffer, page.written)?;
        page.written += self.buffer.len() as u64;
        // One that was very long is not what comes next. What is in a buffer does not go by making it smaller.
        self.buffer.clear();
        self.buffer.shrink_to(KEPT);
        page.waiting += 1;
        self.count += 1;
        self.failing = false;
        Ok(Some(current))
    }
}

impl Page {
    fn clear(&mut self) {
        let Some(file) = &self.file else { return };
        match file.set_len(0) {
            Ok(()) => self.written = 0,
            // What is read twice is written once: only the room is lost.
            Err(error) => tracing::warn!(%error, "a journal cannot be emptied"),
        }
    }
}

impl Folder {
    /// Whoever looks for journals of the dead may take a new one for such, before it is locked: then it is gone.
    fn make(beside: &Path) -> io::Result<Self> {
        loop {
            let path = beside.join(uuid::Uuid::now_v7().to_string());
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

/// Puts into the database what others left behind them. What cannot be is left to the next.
pub(crate) async fn recover(store: &Store, database: &Path) {
    let Some(beside) = folder(database) else { return };
    let folders = match fs::read_dir(&beside) {
        Ok(folders) => folders,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => return tracing::warn!(path = %beside.display(), %error, "journals are not to be read"),
    };
    for path in folders.flatten().map(|entry| entry.path()) {
        match take_over(store, &path).await {
            Ok(0) => {}
            Ok(records) => tracing::info!(records, "records of a process that was killed are in the database now"),
            Err(error) => tracing::warn!(path = %path.display(), %error, "a journal is left as it is"),
        }
    }
}

/// How many records there were.
async fn take_over(store: &Store, path: &Path) -> io::Result<usize> {
    let lock = match File::open(path) {
        Ok(lock) if lock.try_lock().is_ok() => lock,
        // Its writer lives, or somebody else was first.
        Ok(_) => return Ok(0),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let (mut lines, mut unread) = (Vec::new(), Vec::new());
    for page in 0..2 {
        let text = match fs::read(path.join(page.to_string())) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            match serde_json::from_slice::<Line<Row>>(line) {
                Ok(line) => lines.push(line),
                // The last one may be half of one.
                Err(error) if line.ends_with(b"\n") => unread.push(error),
                Err(_) => {}
            }
        }
    }
    if let Some(error) = unread.first() {
        tracing::warn!(records = unread.len(), %error, "records of a process of another version cannot be read");
    }
    lines.sort_by_key(|line| line.count);
    let mut rows: Vec<Row> = lines.into_iter().map(|line| line.row).collect();
    forget_what_was_gone_on_with(&mut rows);
    for batch in rows.chunks(BATCH) {
        write(store, batch, Age::Left).await.map_err(io::Error::other)?;
    }
    fs::remove_dir_all(path)?;
    drop(lock);
    Ok(rows.len())
}

/// Where a turn had begun when the process was killed, what was said before is not the last that was said.
fn forget_what_was_gone_on_with(rows: &mut [Row]) {
    let mut open = HashMap::new();
    for row in &*rows {
        match row {
            Row::Begun(TurnBegun { run, session: Some(session), .. })
            | Row::GoesOn(TurnContinued { run, session, .. }) => {
                open.insert(run.clone(), session.clone());
            }
            Row::Ended(ended) => {
                open.remove(&ended.run);
            }
            Row::Begun(_) | Row::Session { .. } | Row::Started(_) | Row::Workspace(_) | Row::Event(_) => {}
        }
    }
    let spoken_in: HashSet<SessionKey> = open.into_values().collect();
    for row in rows {
        if let Row::Session { turn, .. } = row
            && spoken_in.contains(&turn.id)
        {
            turn.chains.clear();
        }
    }
}

fn folder(database: &Path) -> Option<PathBuf> {
    Some(database.parent()?.join(FOLDER))
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
    fn a_long_record_takes_no_memory_when_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::beside(Some(&folder.path().join("db")));
        for length in [10, 1_000_000, 10] {
            let started = TurnStarted { run: "r".repeat(length), provider: String::new(), time: Time::now() };
            let row = Row::Started(started);
            journal.note(row, |_, noted| assert_eq!(noted.0, [1, 0]));
            assert!(journal.lock().buffer.capacity() <= KEPT, "{length}");
        }
    }
}
