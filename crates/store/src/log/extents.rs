//! Lines of a run that this process writes, for readers that follow it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::line;
use super::record::LogRecord;
use super::segment::Extent;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// The places in the log where the lines of one run are. Lines of other runs may be between them.
#[derive(Debug, Default)]
pub struct RunExtents(Mutex<Vec<Extent>>);

impl RunExtents {
    pub fn add(&self, extent: Extent) {
        let mut extents = self.lock();
        if !extents.last_mut().is_some_and(|last| last.join(&extent)) {
            extents.push(extent);
        }
    }

    fn get(&self, index: usize) -> Option<Extent> {
        self.lock().get(index).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Extent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reader of the records of a run of this process, from the first on.
#[derive(Debug)]
pub struct ExtentReader {
    extents: Arc<RunExtents>,
    /// Extent to read from, and the number of its bytes that have been read.
    index: usize,
    read: u64,
    /// Bytes that have been read. The bytes before `next` have been returned.
    buffer: Vec<u8>,
    next: usize,
}

impl ExtentReader {
    #[must_use]
    pub fn new(extents: Arc<RunExtents>) -> Self {
        Self { extents, index: 0, read: 0, buffer: Vec::new(), next: 0 }
    }

    /// Reads the next record. None if it is not written yet.
    pub fn next_record(&mut self) -> io::Result<Option<LogRecord>> {
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.buffer[self.next..]) {
                let line = line::parse(&self.buffer[self.next..self.next + length]);
                self.next += length + 1;
                let record = line.and_then(|line| serde_json::from_slice(line.record).ok());
                return record.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into());
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Reads more bytes. False if there are none yet.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.next);
        self.next = 0;
        while let Some(extent) = self.extents.get(self.index) {
            let before = self.buffer.len();
            let wanted = READ_BYTES.min(usize::try_from(extent.length() - self.read).unwrap_or(READ_BYTES));
            self.buffer.resize(before + wanted, 0);
            let read = extent.read(self.read, &mut self.buffer[before..]);
            self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
            let read = read?;
            if read > 0 {
                self.read += read as u64;
                return Ok(true);
            }
            // The last extent may still grow.
            if self.extents.get(self.index + 1).is_none() {
                break;
            }
            (self.index, self.read) = (self.index + 1, 0);
        }
        if self.buffer.is_empty() {
            // Many readers may wait for long, so a waiting reader holds no buffer.
            self.buffer = Vec::new();
        }
        Ok(false)
    }
}
