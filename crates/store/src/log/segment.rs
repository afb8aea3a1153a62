//! Segments that this process writes or has written, and parts of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::position::LogPosition;

/// A segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) file: File,
    pub(super) number: u32,
}

/// Consecutive lines in a segment.
#[derive(Debug, Clone)]
pub struct Extent {
    pub(super) segment: Arc<Segment>,
    pub(super) process: Arc<str>,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Extent {
    #[must_use]
    pub fn position(&self) -> LogPosition {
        LogPosition { process: Arc::clone(&self.process), segment: self.segment.number, offset: self.offset }
    }

    /// Extends this by `next`. False if `next` does not follow it directly.
    #[must_use]
    pub(super) fn join(&mut self, next: &Self) -> bool {
        let follows = Arc::ptr_eq(&self.segment, &next.segment) && self.offset + self.length == next.offset;
        if follows {
            self.length += next.length;
        }
        follows
    }

    /// Reads bytes from offset `from` of the extent. Returns how many.
    pub(super) fn read(&self, from: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(usize::try_from(self.length.saturating_sub(from)).unwrap_or(usize::MAX));
        self.segment.file.read_at(&mut buffer[..length], self.offset + from)
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }
}
