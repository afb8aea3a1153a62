//! Injects a full disk into the log writer, for tests.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Failures to come. By default there are none.
#[derive(Debug, Default)]
pub(super) struct DiskFault {
    /// Operations on the disk that succeed before some fail.
    operations: AtomicU64,
    /// Operations that fail.
    failures: AtomicU64,
    /// Bytes that a failing write stores.
    bytes: AtomicU64,
}

impl DiskFault {
    pub(super) fn set(&self, operations: u64, failures: u64, bytes: u64) {
        self.operations.store(operations, Ordering::Relaxed);
        self.failures.store(failures, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether no failure is to come.
    pub(super) fn is_over(&self) -> bool {
        self.failures.load(Ordering::Relaxed) == 0
    }

    /// Counts an operation. The error is that of a full disk.
    pub(super) fn operation(&self) -> io::Result<()> {
        let take = |counter: &AtomicU64| {
            let left = counter.load(Ordering::Relaxed);
            counter.store(left.saturating_sub(1), Ordering::Relaxed);
            left > 0
        };
        if take(&self.operations) || !take(&self.failures) {
            return Ok(());
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    /// Counts a write of some bytes. On an error, returns how many of them are stored nevertheless: never all.
    pub(super) fn write(&self, length: usize) -> Result<(), (usize, io::Error)> {
        let stored = usize::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(usize::MAX).min(length - 1);
        self.operation().map_err(|error| (stored, error))
    }
}
