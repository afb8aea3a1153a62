//! Reads a run's log from any place in it, and goes on with it until the run ends.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use trunkline_core::event::{Answer, Event, Finish};
use trunkline_core::failure::{Category, Failure};
use trunkline_store::{RunState, Store, StoreError};

use super::entry::{self, Entry};
use super::live::{ActiveRun, End, Progress};
use crate::runs::alive;

/// How much is read at once.
const PIECE: usize = 16 * 1024;

/// How often a log that another process writes is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A reader of a run's log. Ends after the run's last event.
pub struct Follow {
    path: Option<PathBuf>,
    file: Option<File>,
    /// What was read and not yet handed out, from `at`.
    buffer: Vec<u8>,
    at: usize,
    /// The number of the next line.
    next: u64,
    /// The first that is wanted.
    from: u64,
    over: bool,
    source: Source,
}

/// Who knows whether more comes.
enum Source {
    /// The run is this process's.
    Here(watch::Receiver<Progress>),
    /// It is another's, or over.
    Elsewhere { run: String, store: Store, state: PathBuf },
}

impl Follow {
    pub(super) fn live(state: &Path, live: &Arc<ActiveRun>, from: u64) -> Self {
        Self::of(entry::path(state, &live.id), from, Source::Here(live.progress()))
    }

    /// One that is over, or that another process runs.
    pub fn kept(state: &Path, store: Store, run: &str, from: u64) -> Self {
        Self::of(
            entry::path(state, run),
            from,
            Source::Elsewhere { run: run.to_owned(), store, state: state.to_owned() },
        )
    }

    fn of(path: Option<PathBuf>, from: u64, source: Source) -> Self {
        Self { path, file: None, buffer: Vec::new(), at: 0, next: 0, from, over: false, source }
    }

    /// The next event, once there is one; none after the last. Cancel safe.
    pub async fn next(&mut self) -> Option<Entry> {
        while !self.over {
            match self.read() {
                Some(entry) => return Some(entry),
                None if self.over => return None,
                None => {}
            }
            match &mut self.source {
                Source::Here(progress) => {
                    let seen = progress.borrow_and_update().clone();
                    // It may have been written since we looked.
                    if let Some(entry) = self.read() {
                        return Some(entry);
                    }
                    let Source::Here(progress) = &mut self.source else { continue };
                    match seen.end {
                        Some(End::Event(event)) => return self.end((*event).clone()),
                        Some(End::Refused(error)) => return self.end(Event::Failed(error.as_failure())),
                        None if progress.changed().await.is_err() => {
                            return self.end(Event::Failed(interrupted()));
                        }
                        None => {}
                    }
                }
                Source::Elsewhere { run, store, state } => {
                    let end = end_of(store, run, state).await.unwrap_or_else(|error| {
                        Some(Event::Failed(Failure::new(Category::Server, format!("the run is not known: {error}"))))
                    });
                    match (self.read(), end) {
                        (Some(entry), _) => return Some(entry),
                        (None, Some(event)) => return self.end(event),
                        (None, None) => tokio::time::sleep(LOOK).await,
                    }
                }
            }
        }
        None
    }

    /// Whether nothing follows any more.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The next event that is written down already.
    pub fn written(&mut self) -> Option<Entry> {
        if self.over { None } else { self.read() }
    }

    /// The next wanted line that is whole.
    fn read(&mut self) -> Option<Entry> {
        loop {
            while let Some(length) = memchr::memchr(b'\n', &self.buffer[self.at..]) {
                let line = &self.buffer[self.at..self.at + length];
                // A line that is no entry, or another's number: what follows is not to be trusted.
                let entry = serde_json::from_slice::<Entry>(line).ok().filter(|entry| entry.seq == self.next)?;
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
        self.buffer.resize(before + PIECE, 0);
        let read = file.read(&mut self.buffer[before..]);
        self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        if self.buffer.is_empty() {
            // Many may wait here for long: who waits holds nothing.
            self.buffer = Vec::new();
        }
        read.map(|read| read > 0)
    }

    /// The log has no end, but the run has.
    fn end(&mut self, event: Event) -> Option<Entry> {
        self.over = true;
        let seq = self.next.max(self.from);
        Some(Entry { seq, at: 0, by: None, event })
    }
}

/// How a run ended that another process ran; none while it does.
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

/// How a run ends whose gateway is no more.
pub(super) fn interrupted() -> Failure {
    let hint = "what it had changed in a worktree is on its branch; ask again to run it anew";
    Failure::new(Category::Server, "interrupted: the gateway ended before the run did").hint(hint)
}

/// Removes the logs of runs that are forgotten, if nobody has written to them for so long.
pub async fn forget_logs(state: &Path, store: &Store, age: Duration) -> io::Result<u64> {
    let Some(oldest) = SystemTime::now().checked_sub(age) else { return Ok(0) };
    let mut removed = 0;
    for folder in fs::read_dir(entry::folder(state)).into_iter().flatten().flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let old = file.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|time| time <= oldest);
            let path = file.path();
            let run = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if old && store.run(&run, None).await.is_ok_and(|row| row.is_none()) {
                fs::remove_file(&path)?;
                removed += 1;
            }
        }
        // Only an empty one goes.
        let _not_empty = fs::remove_dir(folder.path());
    }
    Ok(removed)
}
