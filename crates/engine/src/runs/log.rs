//! Writer of run logs: one JSON line for each event, written before any client sees the event.
//!
//! Events are written to the page cache without a sync. That survives a crash of this process and costs microseconds. A
//! full disk costs the log, not the run.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use trunkline_core::event::Event;
use trunkline_core::secret::Secrets;
use trunkline_store::LogState;

use super::log_entry::{self, CurrentAttempt, RunLogEntry};
use crate::runs::masking::masked_whole;

/// Maximum size of a log. Later events are only counted; the last event is always written.
const MAX_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// Whether a failure to write logs has been reported. It is reported once until a write succeeds again.
static FAILING: AtomicBool = AtomicBool::new(false);

/// Log of an active run.
pub(crate) struct RunLog {
    path: Option<PathBuf>,
    file: Option<File>,
    secrets: Secrets,
    /// Number of events in the log.
    events: u64,
    /// Size of the complete lines, in bytes.
    written: u64,
    /// Number of events that are not in the log.
    omitted: u64,
    /// Whether a write has failed. After that, only the last event is attempted.
    broken: bool,
    current: CurrentAttempt,
    buffer: Vec<u8>,
    max_bytes: u64,
}

/// Borrowed form of [`RunLogEntry`].
#[derive(Serialize)]
struct RunLogLine<'a> {
    seq: u64,
    at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a CurrentAttempt>,
    event: &'a Event,
}

impl RunLog {
    /// The file is created with the first event, or by [`create_file`](Self::create_file).
    pub(crate) fn new(state: &Path, run: &str, secrets: Secrets) -> Self {
        Self::with_max_bytes(MAX_LOG_BYTES, log_entry::path(state, run), secrets)
    }

    fn with_max_bytes(max_bytes: u64, path: Option<PathBuf>, secrets: Secrets) -> Self {
        let (current, buffer) = (CurrentAttempt::default(), Vec::new());
        Self { path, file: None, secrets, events: 0, written: 0, omitted: 0, broken: false, current, buffer, max_bytes }
    }

    /// Creates the file ahead of the first event. An error is reported when that event is written.
    pub(crate) fn create_file(&mut self) {
        if self.file.is_none() {
            self.file = self.path.as_deref().and_then(|path| create(path).ok());
        }
    }

    /// Appends events in one write. Returns the size of the log in bytes.
    pub(crate) fn append<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>, current: &CurrentAttempt) -> u64 {
        self.buffer.clear();
        let (at, before) = (now(), self.events);
        for event in events {
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
        if self.buffer.is_empty() {
            return self.written;
        }
        match self.write() {
            Ok(()) => self.written += self.buffer.len() as u64,
            Err(error) => {
                if !FAILING.swap(true, Ordering::Relaxed) {
                    let path = self.path.as_deref().unwrap_or(Path::new("")).display();
                    tracing::error!(%path, %error, "run logs cannot be written; runs continue without them");
                }
                self.omitted += self.events - before;
                self.events = before;
                self.broken = true;
            }
        }
        self.written
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events == 0
    }

    pub(crate) fn state(&self) -> LogState {
        if self.omitted == 0 && !self.broken { LogState::Complete } else { LogState::Incomplete }
    }

    fn add_line(&mut self, at: u64, current: &CurrentAttempt, event: &Event) {
        let changed = self.events == 0 || *current != self.current;
        if changed {
            self.current.clone_from(current);
        }
        let event = masked_whole(event, &self.secrets);
        let line = RunLogLine { seq: self.events, at, by: changed.then_some(current), event: &event };
        serde_json::to_writer(&mut self.buffer, &line).expect("events serialize, and writes to a Vec do not fail");
        self.buffer.push(b'\n');
        self.events += 1;
    }

    /// Writes after the last complete line. Removes the remains of a write that failed.
    fn write(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(create(self.path.as_deref().ok_or(io::ErrorKind::InvalidFilename)?)?),
        };
        if self.broken {
            file.set_len(self.written)?;
        }
        file.write_all_at(&self.buffer, self.written)?;
        FAILING.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// Adds the last event to a log whose writer has died, after the last complete line.
pub(super) fn add_last(path: &Path, event: &Event) -> io::Result<()> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let last = bytes[..complete].split(|byte| *byte == b'\n').rfind(|line| !line.is_empty());
    let last = last.and_then(|line| serde_json::from_slice::<RunLogEntry>(line).ok());
    if last.as_ref().is_some_and(|last| last.event.is_end()) {
        return Ok(());
    }
    let line = RunLogLine { seq: last.map_or(0, |last| last.seq + 1), at: now(), by: None, event };
    let mut line = serde_json::to_vec(&line)?;
    line.push(b'\n');
    let file =
        if complete == 0 && bytes.is_empty() { create(path)? } else { OpenOptions::new().write(true).open(path)? };
    file.set_len(complete as u64)?;
    file.write_all_at(&line, complete as u64)
}

/// Opens or creates a log. Logs contain conversations, so only the owner may read them.
fn create(path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            open()
        }
        opened => opened,
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
