//! Writer of the log of this process.
//!
//! A line is handed to the kernel before the caller continues: it survives the end of this process, however it ends. With
//! [`Durability::Fsync`], [`LogWriter::sync`] also makes it survive a power failure; calls that wait at the same time share
//! one `fdatasync`.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(any(test, feature = "test-util"))]
use super::fault::DiskFault;
use super::folder::LogFolder;
use super::position::LogPosition;
use super::segment::{Extent, Segment};
use super::writer_state::WriterState;

/// Size at which a segment is full.
const MAX_SEGMENT_BYTES: u64 = 16 * 1024 * 1024;

/// Size of a write that tests whether the log can be written again.
const TEST_BYTES: usize = 64 * 1024;

/// Failures that a record survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The end of the process.
    #[default]
    Process,
    /// A power failure, too.
    Fsync,
}

/// Appends lines to the segments of this process.
#[derive(Debug)]
pub struct LogWriter {
    pub(super) folder: LogFolder,
    pub(super) durability: Durability,
    pub(super) process: Arc<str>,
    /// Size at which a segment is full.
    pub(super) max_segment_bytes: u64,
    state: Mutex<WriterState>,
    /// Bytes written, over all segments.
    written: AtomicU64,
    failed_writes: AtomicU64,
    /// Bytes that survive a power failure. Locked during an `fdatasync`.
    synced: tokio::sync::Mutex<u64>,
    #[cfg(any(test, feature = "test-util"))]
    fault: DiskFault,
}

/// Importance of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A run is accepted. Refused unless its end will have room as well.
    Accept,
    /// Anything else.
    Continue,
}

impl LogWriter {
    #[must_use]
    pub fn new(state: &Path, durability: Durability) -> Self {
        Self {
            folder: LogFolder::of_state(state),
            durability,
            process: uuid::Uuid::now_v7().to_string().into(),
            max_segment_bytes: MAX_SEGMENT_BYTES,
            state: Mutex::default(),
            written: AtomicU64::new(0),
            failed_writes: AtomicU64::new(0),
            synced: tokio::sync::Mutex::new(0),
            #[cfg(any(test, feature = "test-util"))]
            fault: DiskFault::default(),
        }
    }

    /// Makes segments smaller, so that a test fills several.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn segment_bytes(mut self, max: u64) -> Self {
        self.max_segment_bytes = max;
        self
    }

    /// Lets operations on the disk fail because it is full: `failures` of them, after `operations` that succeed. A write
    /// that fails stores its first `bytes`.
    #[cfg(any(test, feature = "test-util"))]
    pub fn fail_after(&self, operations: u64, failures: u64, bytes: u64) {
        self.fault.set(operations, failures, bytes);
    }

    /// Whether no failure is to come.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.fault.is_over()
    }

    /// Name of this process in the log.
    pub(crate) fn process(&self) -> &str {
        &self.process
    }

    /// Appends lines in one write. On an error, none of them is in the log. `then` is called with their extent before any
    /// other line is written.
    pub fn append<R>(&self, lines: &[u8], purpose: Purpose, then: impl FnOnce(&Extent) -> R) -> io::Result<R> {
        let mut state = self.state();
        let written = state.prepare(self, lines.len() as u64, purpose).and_then(|segment| {
            let written = self.write(&segment, lines, state.length);
            state.failing = written.is_err();
            if written.is_err() {
                state.torn = true;
                // Tried again before the next write.
                let _ = state.cut(self, &segment);
            }
            written.map(|()| segment)
        });
        let segment = written.inspect_err(|_| {
            self.failed_writes.fetch_add(1, Ordering::Relaxed);
        })?;
        let (offset, length) = (state.length, lines.len() as u64);
        state.length += length;
        self.written.fetch_add(length, Ordering::Release);
        Ok(then(&Extent { segment, process: Arc::clone(&self.process), offset, length }))
    }

    /// Checks whether a run could be accepted now: reserves space as if it were.
    pub fn check(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.segment.is_none() {
            return Ok(());
        }
        state.reserved = 0;
        let segment = state.prepare(self, 0, Purpose::Accept)?;
        if state.failing {
            // Space can be reserved beyond a limit of the file size, so only a write tells.
            state.torn = true;
            segment.file.write_all_at(&[b' '; TEST_BYTES], state.length)?;
            state.cut(self, &segment)?;
            state.failing = false;
        }
        Ok(())
    }

    /// Number of writes that failed.
    #[must_use]
    pub fn failed_writes(&self) -> u64 {
        self.failed_writes.load(Ordering::Relaxed)
    }

    /// Runs `read` with the end of the log, while no line is written. None if nothing was written yet.
    pub(crate) fn with_end<R>(&self, read: impl FnOnce(Option<LogPosition>) -> R) -> R {
        let state = self.state();
        let end = state.segment.as_ref().map(|segment| LogPosition {
            process: Arc::clone(&self.process),
            segment: segment.number,
            offset: state.length,
        });
        read(end)
    }

    /// Waits until everything that was appended before survives what [`Durability`] promises.
    pub async fn sync(self: &Arc<Self>) -> io::Result<()> {
        if self.durability == Durability::Process {
            return Ok(());
        }
        let wanted = self.written.load(Ordering::Acquire);
        let mut synced = self.synced.lock().await;
        if *synced >= wanted {
            return Ok(());
        }
        let (segment, covered) = {
            let state = self.state();
            (state.segment.clone(), self.written.load(Ordering::Acquire))
        };
        if let Some(segment) = segment {
            tokio::task::spawn_blocking(move || segment.file.sync_data()).await.map_err(io::Error::other)??;
        }
        *synced = covered;
        Ok(())
    }

    /// Removes the lock of this process, because everything that it wrote is in the database.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        if let Some(lock) = state.lock.take() {
            state.trim();
            lock.remove();
        }
    }

    fn write(&self, segment: &Segment, lines: &[u8], offset: u64) -> io::Result<()> {
        #[cfg(any(test, feature = "test-util"))]
        if let Err((stored, error)) = self.fault.write(lines.len()) {
            segment.file.write_all_at(&lines[..stored], offset)?;
            return Err(error);
        }
        segment.file.write_all_at(lines, offset)
    }

    /// Fails if a test wants this operation to fail.
    pub(super) fn operation(&self) -> io::Result<()> {
        #[cfg(any(test, feature = "test-util"))]
        self.fault.operation()?;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
