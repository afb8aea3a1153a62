//! Writer of one run's lines in the log. An event is in the log before any client sees it.
//!
//! Lines are collected in a buffer and written together. Secrets are masked here. Text that may be the beginning of a
//! secret is held back until the next event, because a secret may be split between two deltas.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use trunkline_core::event::Event;
use trunkline_core::secret::Secrets;
use trunkline_store::{
    CurrentAttempt, Extent, LogRecord, LogState, LogWriter, Purpose, RunExtents, is_run_id, log_line,
};

use crate::runs::logged::LoggedEvents;

/// Maximum size of the lines of a run. Later events are only counted; the last event is always written.
const MAX_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// Capacity of the buffer that is kept for the next lines.
const MAX_IDLE_BUFFER_BYTES: usize = 64 * 1024;

/// Whether a failure to write the log has been reported. It is reported once until a write succeeds again.
static FAILING: AtomicBool = AtomicBool::new(false);

/// Lines of an active run.
pub(crate) struct RunLog {
    writer: Arc<LogWriter>,
    run: String,
    extents: Arc<RunExtents>,
    /// Lines that are not written yet.
    buffer: Vec<u8>,
    /// Number of events so far, including those in the buffer.
    events: u64,
    /// Number of events in the buffer.
    buffered_events: u64,
    /// Size of the lines that are written.
    written: u64,
    /// Number of events that are not in the log.
    omitted: u64,
    /// Whether a write has failed. After that, only the end of the run is attempted.
    broken: bool,
    /// Whether the first record could not be written. Without it, other records are useless.
    disabled: bool,
    current: CurrentAttempt,
    /// Taken while events are added.
    logged: Option<LoggedEvents>,
    max_bytes: u64,
}

/// Borrowed form of [`LogRecord::Event`].
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum EventRecord<'a> {
    Event(BorrowedEntry<'a>),
}

#[derive(Serialize)]
struct BorrowedEntry<'a> {
    seq: u64,
    at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a CurrentAttempt>,
    event: &'a Event,
}

impl RunLog {
    pub(crate) fn new(writer: Arc<LogWriter>, run: &str, secrets: Secrets, extents: Arc<RunExtents>) -> Self {
        Self {
            writer,
            run: run.to_owned(),
            extents,
            buffer: Vec::new(),
            events: 0,
            buffered_events: 0,
            written: 0,
            omitted: 0,
            broken: false,
            disabled: !is_run_id(run),
            current: CurrentAttempt::default(),
            logged: Some(LoggedEvents::new(secrets)),
            max_bytes: MAX_LOG_BYTES,
        }
    }

    /// Writes the first record. If that fails, nothing of the run is written.
    pub(crate) fn accept(&mut self, record: &LogRecord, then: impl FnOnce(&Extent)) -> io::Result<()> {
        self.push(record);
        let written = self.write(Purpose::Accept, then);
        self.disabled |= written.is_err();
        written
    }

    /// Adds a record, which is written with the next [`write`](Self::write).
    pub(crate) fn push(&mut self, record: &LogRecord) {
        if !self.disabled {
            log_line(&mut self.buffer, &self.run, record);
        }
    }

    /// Adds events, which are written with the next [`write`](Self::write).
    pub(crate) fn push_events<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>, current: &CurrentAttempt) {
        let at = now();
        let Some(mut logged) = self.logged.take() else { return };
        for event in events {
            logged.push(event, &mut |event| self.add(at, current, event));
        }
        self.logged = Some(logged);
    }

    /// Writes everything that was added, in one write.
    pub(crate) fn write(&mut self, purpose: Purpose, then: impl FnOnce(&Extent)) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let extents = &self.extents;
        let written = self.writer.append(&self.buffer, purpose, |extent| {
            extents.add(extent.clone());
            then(extent);
        });
        match &written {
            Ok(()) => {
                self.written += self.buffer.len() as u64;
                FAILING.store(false, Ordering::Relaxed);
            }
            Err(error) => {
                if !FAILING.swap(true, Ordering::Relaxed) {
                    tracing::error!(%error, "the log of runs cannot be written");
                }
                self.omitted += self.buffered_events;
                self.events -= self.buffered_events;
                self.broken = true;
            }
        }
        self.buffered_events = 0;
        self.buffer.clear();
        self.buffer.shrink_to(MAX_IDLE_BUFFER_BYTES);
        written
    }

    /// Size of the lines that are written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Whether there was no event so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.events == 0 && self.logged.as_ref().is_none_or(LoggedEvents::is_empty)
    }

    pub(crate) fn state(&self) -> LogState {
        if self.omitted == 0 && !self.broken && !self.disabled { LogState::Complete } else { LogState::Incomplete }
    }

    fn add(&mut self, at: u64, current: &CurrentAttempt, event: &Event) {
        if self.disabled {
            self.omitted += 1;
            return;
        }
        let end = event.is_end();
        if end && self.omitted > 0 {
            let message = format!("{} events are not in the log", self.omitted);
            self.add_line(at, current, &Event::Notice { message });
        }
        if end || !(self.broken || self.written + self.buffer.len() as u64 >= self.max_bytes) {
            self.add_line(at, current, event);
        } else {
            self.omitted += 1;
        }
    }

    fn add_line(&mut self, at: u64, current: &CurrentAttempt, event: &Event) {
        let changed = self.events == 0 || *current != self.current;
        if changed {
            self.current.clone_from(current);
        }
        let entry = BorrowedEntry { seq: self.events, at, by: changed.then_some(current), event };
        log_line(&mut self.buffer, &self.run, &EventRecord::Event(entry));
        self.events += 1;
        self.buffered_events += 1;
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
