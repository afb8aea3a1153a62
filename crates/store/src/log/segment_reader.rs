//! Reads the lines of a segment in order.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use super::compressed::CompressedSegment;
use super::folder::LogFolder;
use super::line::{self, Line};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// Reader of one segment. Stops at an incomplete line, and skips a damaged line if an intact one follows.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    source: SegmentSource,
    /// Offset of the first byte in `buffer`.
    buffered_at: u64,
    buffer: Vec<u8>,
    /// Index of the next line in `buffer`.
    next: usize,
    /// Bytes from there to the end of the line that was returned last.
    returned: usize,
}

/// File of a segment.
#[derive(Debug)]
enum SegmentSource {
    Plain(File),
    Compressed(Box<CompressedSegment>),
}

impl SegmentSource {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read_at(buffer, offset),
            Self::Compressed(segment) => segment.read_at(buffer, offset),
        }
    }
}

impl LogFolder {
    /// Opens a segment to read it from the line at `offset`.
    pub(crate) fn open_segment(&self, process: &str, number: u32, offset: u64) -> io::Result<SegmentReader> {
        let source = match File::open(self.segment_path(process, number)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                SegmentSource::Compressed(CompressedSegment::open(&self.compressed_path(process, number))?.into())
            }
            opened => SegmentSource::Plain(opened?),
        };
        Ok(SegmentReader { source, buffered_at: offset, buffer: Vec::new(), next: 0, returned: 0 })
    }
}

impl SegmentReader {
    /// Offset of the next line.
    pub(crate) fn offset(&self) -> u64 {
        self.buffered_at + (self.next + self.returned) as u64
    }

    /// Reads the next line, with its offset. None at the end, or at a line that is not complete (yet): then `offset` is
    /// where it begins, and another call reads it once it is complete.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, Line<'_>)>> {
        self.next += std::mem::take(&mut self.returned);
        // Both count from `self.next`, which moves when the buffer is filled.
        let (mut line, mut searched) = (0, 0);
        let space = loop {
            let Some(length) = memchr::memchr(b'\n', &self.buffer[self.next + searched..]) else {
                searched = self.buffer.len() - self.next;
                if self.fill()? {
                    continue;
                }
                return Ok(None);
            };
            let end = searched + length;
            if let Some(space) = line::verify(&self.buffer[self.next + line..self.next + end]) {
                self.returned = end + 1;
                break space;
            }
            (line, searched) = (end + 1, end + 1);
        };
        let (from, to) = (self.next + line, self.next + self.returned - 1);
        Ok(line::split(&self.buffer[from..to], space).map(|line| (self.buffered_at + from as u64, line)))
    }

    /// Reads more bytes behind the present line. False at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.next);
        self.buffered_at += self.next as u64;
        self.next = 0;
        let before = self.buffer.len();
        self.buffer.resize(before + READ_BYTES, 0);
        let read = self.source.read_at(&mut self.buffer[before..], self.buffered_at + before as u64);
        self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        if self.buffer.is_empty() {
            // Many readers may wait for long, so a waiting reader holds no buffer.
            self.buffer = Vec::new();
        }
        Ok(read? > 0)
    }
}
