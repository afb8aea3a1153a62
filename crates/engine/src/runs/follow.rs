//! Reader of a run's events: starts at any event and follows the log until the run ends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use trunkline_core::event::{Answer, Event, Finish};
use trunkline_core::failure::{Category, Failure};
use trunkline_store::{ExtentReader, LogRecord, RunLogEntry, RunLogReader, RunRow, RunState, Store, StoreError};

use super::live::{ActiveRun, EndDurability, RunEnding, RunProgress};
use crate::runs::alive;

/// Interval between reads of a log that another process writes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Reader of the events of a run. Ends after the last event.
pub struct Follow {
    /// Sequence number of the next event in the log.
    next: u64,
    /// Sequence number of the first event to return.
    from: u64,
    over: bool,
    /// The last event, as long as it may not be returned.
    held: Option<RunLogEntry>,
    source: LogSource,
}

/// Where the events are, and the information whether the run continues.
enum LogSource {
    /// This process drives the run.
    Live { reader: ExtentReader, progress: watch::Receiver<RunProgress> },
    /// Another process drives the run, or the run has ended.
    Kept { reader: Option<RunLogReader>, run: String, store: Store, state: PathBuf },
}

impl LogSource {
    /// Whether the last event may be returned.
    fn end_durability(&self) -> EndDurability {
        match self {
            Self::Live { progress, .. } => progress.borrow().durability,
            Self::Kept { .. } => EndDurability::Reached,
        }
    }

    fn next(&mut self) -> io::Result<Option<LogRecord>> {
        match self {
            Self::Live { reader, .. } => reader.next_record(),
            Self::Kept { reader, .. } => reader.as_mut().map_or(Ok(None), RunLogReader::next_record),
        }
    }
}

impl Follow {
    pub(super) fn live(live: &Arc<ActiveRun>, from: u64) -> Self {
        let reader = ExtentReader::new(live.extents());
        Self::of(from, LogSource::Live { reader, progress: live.progress() })
    }

    /// Follows a run that has ended or that another process drives.
    pub fn kept(state: &Path, store: Store, row: &RunRow, from: u64) -> Self {
        let (reader, run) = (store.run_log(row), row.id.clone());
        Self::of(from, LogSource::Kept { reader, run, store, state: state.to_owned() })
    }

    fn of(from: u64, source: LogSource) -> Self {
        Self { next: 0, from, over: false, held: None, source }
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
                LogSource::Live { progress, .. } => {
                    let seen = progress.borrow_and_update().clone();
                    // The log may have grown since the last read.
                    if let Some(entry) = self.read() {
                        return Some(entry);
                    }
                    let LogSource::Live { progress, .. } = &mut self.source else { continue };
                    match seen.end.filter(|_| seen.durability != EndDurability::Pending) {
                        Some(RunEnding::Event(event)) => return self.end((*event).clone()),
                        Some(RunEnding::Logged) => return self.end(Event::Failed(unreadable())),
                        Some(RunEnding::Refused(error)) => return self.end(Event::Failed(error.as_failure())),
                        None if progress.changed().await.is_err() => {
                            return self.end(Event::Failed(interrupted()));
                        }
                        None => {}
                    }
                }
                LogSource::Kept { run, store, state, .. } => {
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

    /// Returns the next event at or after `from`.
    fn read(&mut self) -> Option<RunLogEntry> {
        if self.held.is_some() {
            return self.release_end();
        }
        while let Ok(Some(record)) = self.source.next() {
            let LogRecord::Event(entry) = record else { continue };
            // An entry out of sequence: the rest of the log is not trusted.
            if entry.seq != self.next {
                return None;
            }
            self.next += 1;
            if entry.event.is_end() {
                self.held = Some(*entry);
                return self.release_end();
            }
            if entry.seq >= self.from {
                return Some(*entry);
            }
        }
        None
    }

    /// Returns the last event, if it is durable.
    fn release_end(&mut self) -> Option<RunLogEntry> {
        match self.source.end_durability() {
            EndDurability::Reached => {
                self.over = true;
                self.held.take().filter(|entry| entry.seq >= self.from)
            }
            EndDurability::Pending | EndDurability::Failed => None,
        }
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
        RunState::Finished | RunState::Parked => {
            let answer = store.turn(run).await?.and_then(|turn| turn.answer).unwrap_or_default();
            Some(Event::Finished(Answer::new(answer, row.usage, Finish::Stop)))
        }
        RunState::Failed | RunState::Cancelled | RunState::Interrupted => {
            Some(Event::Failed(failed().unwrap_or_else(interrupted)))
        }
    })
}

/// Failure of a run whose last event is in the log and cannot be read.
fn unreadable() -> Failure {
    Failure::new(Category::Server, "the end of the run cannot be read from the log")
}

/// Failure of a run whose gateway has died.
pub(super) fn interrupted() -> Failure {
    let hint = "changes in its worktree are on its branch; send the request again to start a new run";
    Failure::new(Category::Server, "interrupted: the gateway ended before the run did").hint(hint)
}
