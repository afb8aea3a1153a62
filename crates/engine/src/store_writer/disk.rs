//! Check whether the state folder takes writes, for `/health`.
//!
//! A run that cannot be recorded could be lost, or run twice under one idempotency key, so it is refused when its first line cannot
//! be written to the log. The check tells that before a run is tried: a file is created, filled and removed, which detects a disk
//! that is full, read-only, over its quota or out of inodes. It also reports that the database cannot be written.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::Instant;
use trunkline_core::turn::Surface;

use super::StoreWriter;
use crate::start_error::StartError;

/// Free space that a run needs at least: its row, and the beginning of its log.
const PROBE_BYTES: usize = 256 * 1024;

const PROBE_FILE: &str = ".write-test";

/// Time for which a good result is reused for `/health`, which anyone may request at any rate.
const GOOD_FOR: Duration = Duration::from_millis(100);

/// `Retry-After` of a refused request.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// State of the check.
#[derive(Debug)]
pub(super) struct DiskCheck {
    state: PathBuf,
    /// Time of the last good result.
    last_good: Mutex<Option<Instant>>,
    /// Whether the log could not be written the last time.
    failing: AtomicBool,
    /// Whether the present failure has been logged.
    reported: AtomicBool,
}

impl DiskCheck {
    pub(super) fn new(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            last_good: Mutex::default(),
            failing: AtomicBool::default(),
            reported: AtomicBool::default(),
        }
    }

    fn last_good(&self) -> MutexGuard<'_, Option<Instant>> {
        self.last_good.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreWriter {
    /// As [`storage_trouble`](Self::storage_trouble), but a good result is reused for [`GOOD_FOR`].
    pub(crate) fn cached_trouble(&self) -> Option<String> {
        if self.disk.last_good().is_some_and(|at| at.elapsed() < GOOD_FOR) {
            return None;
        }
        let trouble = self.storage_trouble();
        *self.disk.last_good() = trouble.is_none().then(Instant::now);
        trouble
    }

    /// Whether a turn may only run if it is recorded: its client may come back for the answer. Turns of a terminal or a
    /// Discord channel run without a record.
    pub(crate) fn must_record(&self, surface: Surface) -> bool {
        match surface {
            // Without a database there is no record to protect.
            Surface::Http | Surface::Page => self.store().is_some(),
            Surface::Run | Surface::Repl | Surface::Discord => false,
        }
    }

    /// Refuses a turn if the last check or the last turn has shown that the log cannot be written, and it still cannot.
    pub(crate) fn check_storage(&self) -> Result<(), StartError> {
        if !self.disk.failing.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.log_trouble() {
            Some(reason) => Err(self.unwritable(reason)),
            None => Ok(()),
        }
    }

    fn storage_trouble(&self) -> Option<String> {
        // Without a database there is no record to protect.
        let feed = self.feed()?;
        self.log_trouble().or_else(|| feed.disk_error())
    }

    /// The reason why the log cannot be written.
    fn log_trouble(&self) -> Option<String> {
        let trouble = match probe(&self.disk.state).and_then(|()| self.log.check()) {
            Err(error) if !is_resource_shortage(&error) => Some(error.to_string()),
            Ok(()) | Err(_) => None,
        };
        self.disk.failing.store(trouble.is_some(), Ordering::Relaxed);
        if trouble.is_none() && self.disk.reported.swap(false, Ordering::Relaxed) {
            tracing::info!("the state folder can be written again");
        }
        trouble
    }

    /// Refuses a run whose record could not be kept.
    pub(crate) fn unwritable(&self, reason: impl ToString) -> StartError {
        let reason = reason.to_string();
        self.disk.failing.store(true, Ordering::Relaxed);
        if !self.disk.reported.swap(true, Ordering::Relaxed) {
            tracing::error!(reason, "runs are refused: the state folder cannot be written");
        }
        StartError::Storage { reason, retry_after: RETRY_AFTER }
    }
}

/// Whether the error is a lack of descriptors or memory, which says nothing about the disk. A run that needs files reports it.
fn is_resource_shortage(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// All processes use one file name, so that a file left by a killed process is removed by the next check.
fn probe(state: &Path) -> io::Result<()> {
    static ZEROS: [u8; PROBE_BYTES] = [0; PROBE_BYTES];
    let path = state.join(PROBE_FILE);
    let open = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    let file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(state)?;
            open()?
        }
        opened => opened?,
    };
    let written = file.write_all_at(&ZEROS, 0);
    let removed = match fs::remove_file(&path) {
        // A concurrent check has removed it.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    };
    written.and(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        probe(&state).unwrap();
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    }

    #[test]
    fn probe_fails_when_the_state_folder_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state");
        fs::write(&file, "").unwrap();
        assert!(probe(&file).is_err());
    }
}
