//! Writes a run's log: one JSON line for each event, on disk before anybody sees the event.
//!
//! A plain write into the page cache: that survives the end of this process, however it comes, and costs microseconds. A
//! disk that takes no more costs the log, not the run.

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

use super::entry::{self, By};
use crate::runs::masking::masked_whole;

/// The largest log. What comes after that is counted; the end is always written.
const MOST: u64 = 64 * 1024 * 1024;

/// Whether somebody has been told that logs cannot be written: once is enough while it lasts.
static FAILING: AtomicBool = AtomicBool::new(false);

/// The log of a run that goes on.
pub(crate) struct Log {
    path: Option<PathBuf>,
    file: Option<File>,
    secrets: Secrets,
    /// How many events it has.
    events: u64,
    /// How many bytes of it are whole lines.
    written: u64,
    /// How many events are not in it.
    left_out: u64,
    /// Something could not be written: nothing more is tried before the end.
    broken: bool,
    by: By,
    buffer: Vec<u8>,
    most: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a By>,
    event: &'a Event,
}

impl Log {
    /// The file is made with the first event, or [before](Self::make).
    pub(crate) fn new(state: &Path, run: &str, secrets: Secrets) -> Self {
        Self::up_to(MOST, entry::path(state, run), secrets)
    }

    fn up_to(most: u64, path: Option<PathBuf>, secrets: Secrets) -> Self {
        let (by, buffer) = (By::default(), Vec::new());
        Self { path, file: None, secrets, events: 0, written: 0, left_out: 0, broken: false, by, buffer, most }
    }

    /// Makes the file while nothing is to be written yet. What is in the way of that is said with the first event.
    pub(crate) fn make(&mut self) {
        if self.file.is_none() {
            self.file = self.path.as_deref().and_then(|path| create(path).ok());
        }
    }

    /// Adds events that came together, in one write; how many bytes the log has now.
    pub(crate) fn append<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>, by: &By) -> u64 {
        self.buffer.clear();
        let (at, before) = (now(), self.events);
        for event in events {
            let end = event.is_end();
            if end && self.left_out > 0 {
                let message = format!("{} events are not in the log", self.left_out);
                self.line(at, by, &Event::Notice { message });
            }
            if end || !(self.broken || self.written + self.buffer.len() as u64 >= self.most) {
                self.line(at, by, event);
            } else {
                self.left_out += 1;
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
                    tracing::error!(%path, %error, "the logs of runs cannot be written; runs go on without");
                }
                self.left_out += self.events - before;
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
        if self.left_out == 0 && !self.broken { LogState::Complete } else { LogState::Incomplete }
    }

    fn line(&mut self, at: u64, by: &By, event: &Event) {
        let changed = self.events == 0 || *by != self.by;
        if changed {
            self.by.clone_from(by);
        }
        let event = masked_whole(event, &self.secrets);
        let line = Line { seq: self.events, at, by: changed.then_some(by), event: &event };
        serde_json::to_writer(&mut self.buffer, &line).expect("an event has no keys but strings, and a Vec takes it");
        self.buffer.push(b'\n');
        self.events += 1;
    }

    /// At the end of the whole lines: what a write that failed left behind it goes.
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

/// Adds a line to a log whose writer is gone, after the last whole one.
pub(super) fn add_last(path: &Path, event: &Event) -> io::Result<()> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let last = bytes[..whole].split(|byte| *byte == b'\n').rfind(|line| !line.is_empty());
    let last = last.and_then(|line| serde_json::from_slice::<entry::Entry>(line).ok());
    if last.as_ref().is_some_and(|last| last.event.is_end()) {
        return Ok(());
    }
    let line = Line { seq: last.map_or(0, |last| last.seq + 1), at: now(), by: None, event };
    let mut line = serde_json::to_vec(&line)?;
    line.push(b'\n');
    let file =
        if whole == 0 && bytes.is_empty() { create(path)? } else { OpenOptions::new().write(true).open(path)? };
    file.set_len(whole as u64)?;
    file.write_all_at(&line, whole as u64)
}

/// What people said is for nobody else to read.
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
