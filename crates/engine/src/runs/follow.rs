//! Reader of a run log: starts at any event and follows the log until the run ends.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use trunkline_core::event::{Answer, Event, Finish};
use trunkline_core::failure::{Category, Failure};
use trunkline_store::{RunState, Store, StoreError};

use super::live::{ActiveRun, RunEnding, RunProgress};
use super::log_entry::{self, RunLogEntry};
use crate::runs::alive;

/// Bytes read at once.
const READ_CHUNK_BYTES: usize = 16 * 1024;

/// Interval between reads of a log that another process writes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Reader of a run log. Ends after the last event of the run.
pub struct Follow {
    path: Option<PathBuf>,
    file: Option<File>,
    /// Bytes read from the file. Those before `at` have been returned.
    buffer: Vec<u8>,
    at: usize,
    /// Sequence number of the next line.
    next: u64,
    /// Sequence number of the first event to return.
    from: u64,
    over: bool,
    source: LogSource,
}

/// Source of the information whether the run continues.
enum LogSource {
    /// This process drives the run.
    Registry(watch::Receiver<RunProgress>),
    /// Another process drives the run, or the run has ended.
    Store { run: String, store: Store, state: PathBuf },
}

impl Follow {
    pub(super) fn live(state: &Path, live: &Arc<ActiveRun>, from: u64) -> Self {
        Self::of(log_entry::path(state, &live.id), from, LogSource::Registry(live.progress()))
    }

    /// Follows a run that has ended or that another process drives.
    pub fn kept(state: &Path, store: Store, run: &str, from: u64) -> Self {
        Self::of(
            log_entry::path(state, run),
            from,
            LogSource::Store { run: run.to_owned(), store, state: state.to_owned() },
        )
    }

    fn of(path: Option<PathBuf>, from: u64, source: LogSource) -> Self {
        Self { path, file: None, buffer: Vec::new(), at: 0, next: 0, from, over: false, source }
    }

    /// Waits for the next event. `None` after the last one. Cancel safe.
    pub async fn next(&mut self) -> Option<RunLogEntry> {
        while !self.over {
            match self.read() {
                Some(entry) => return Some(entry),
                None if self.over => return None,
                None => {}
            }
            match &mut self.source {
                LogSource::Registry(progress) => {
                    let seen = progress.borrow_and_update().clone();
                    // The log may have grown since the last read.
                    if let Some(entry) = self.read() {
                        return Some(entry);
                    }
                    let LogSource::Registry(progress) = &mut self.source else { continue };
                    match seen.end {
                        Some(RunEnding::Event(event)) => return self.end((*event).clone()),
                        Some(RunEnding::Refused(error)) => return self.end(Event::Failed(error.as_failure())),
                        None if progress.changed().await.is_err() => {
                            return self.end(Event::Failed(interrupted()));
                        }
                        None => {}
                    }
                }
                LogSource::Store { run, store, state } => {
                    let end = end_of(store, run, state).await.unwrap_or_else(|error| {
                        Some(Event::Failed(Failure::new(
                            Category::Server,
                            format!("the run could not be read: {error}"),
                        )))
                    });
                    match (self.read(), end) {
                        (Some(entry), _) => return Some(entry),
                        (None, Some(event)) => return self.end(event),
                        (None, None) => tokio::time::sleep(POLL_INTERVAL).await,
                    }
                }
            }
        }
        None
    }

    /// Whether the last event has been returned.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the next event if it is already in the log.
    pub fn written(&mut self) -> Option<RunLogEntry> {
        if self.over { None } else { self.read() }
    }

    /// Returns the next complete entry at or after `from`.
    fn read(&mut self) -> Option<RunLogEntry> {
        loop {
            while let Some(length) = memchr::memchr(b'\n', &self.buffer[self.at..]) {
                let line = &self.buffer[self.at..self.at + length];
                // A line that does not parse or is out of sequence: the rest of the log is not trusted.
                let entry = serde_json::from_slice::<RunLogEntry>(line).ok().filter(|entry| entry.seq == self.next)?;
                self.at += length + 1;
                self.next += 1;
                self.over = entry.event.is_end();
                if entry.seq >= self.from {
                    return Some(entry);
                }
                if self.over {
                    return None;
                }
            }
            if !self.read_more().is_ok_and(|more| more) {
                return None;
            }
        }
    }

    fn read_more(&mut self) -> io::Result<bool> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(File::open(self.path.as_deref().ok_or(io::ErrorKind::NotFound)?)?),
        };
        self.buffer.drain(..self.at);
        self.at = 0;
        let before = self.buffer.len();
        self.buffer.resize(before + READ_CHUNK_BYTES, 0);
        let read = file.read(&mut self.buffer[before..]);
        self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        if self.buffer.is_empty() {
            // Many readers may wait here for long, so a waiting reader holds no buffer.
            self.buffer = Vec::new();
        }
        read.map(|read| read > 0)
    }

    /// Ends a log that lacks its last event although the run has ended.
    fn end(&mut self, event: Event) -> Option<RunLogEntry> {
        self.over = true;
        let seq = self.next.max(self.from);
        Some(RunLogEntry { seq, at: 0, by: None, event })
    }
}

/// Returns the last event of a run that another process drives. `None` while it is running.
async fn end_of(store: &Store, run: &str, state: &Path) -> Result<Option<Event>, StoreError> {
    let Some(row) = store.run(run, None).await? else { return Ok(Some(Event::Failed(interrupted()))) };
    let failed = || row.error.as_ref().map(|error| Failure::new(error.category, error.message.clone()));
    Ok(match row.state {
        RunState::Queued | RunState::Running => {
            row.gateway.as_deref().is_some_and(|mark| alive::is_dead(state, mark)).then(|| Event::Failed(interrupted()))
        }
        RunState::Finished => {
            let answer = store.turn(run).await?.and_then(|turn| turn.answer).unwrap_or_default();
            Some(Event::Finished(Answer::new(answer, row.usage, Finish::Stop)))
        }
        RunState::Failed | RunState::Cancelled | RunState::Interrupted => {
            Some(Event::Failed(failed().unwrap_or_else(interrupted)))
        }
    })
}

/// Failure of a run whose gateway has died.
pub(super) fn interrupted() -> Failure {
    let hint = "changes in its worktree are on its branch; send the request again to start a new run";
    Failure::new(Category::Server, "interrupted: the gateway ended before the run did").hint(hint)
}

/// Removes logs without a row in the store that have not been written to for `age`.
pub async fn forget_logs(state: &Path, store: &Store, age: Duration) -> io::Result<u64> {
    let Some(oldest) = SystemTime::now().checked_sub(age) else { return Ok(0) };
    let mut removed = 0;
    for folder in fs::read_dir(log_entry::folder(state)).into_iter().flatten().flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let old = file.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|time| time <= oldest);
            let path = file.path();
            let run = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if old && store.run(&run, None).await.is_ok_and(|row| row.is_none()) {
                fs::remove_file(&path)?;
                removed += 1;
            }
        }
        // Removes the folder only if it is empty.
        let _ = fs::remove_dir(folder.path());
    }
    Ok(removed)
}
