//! Compressed segments: `<process>.<number>.log.zst`.
//!
//! The file is a sequence of zstd frames, each with whole lines, so that a reader need not decompress what is before the
//! run it wants. A table at the end says where each frame begins; it is a skippable frame, which other programs ignore
//! (`zstd -dc` prints the segment):
//!
//! ```text
//! frame … frame │ 0x184D2A50  size │ (content offset, file offset) …  content size  number of frames  "TLZ1"
//! ```
//!
//! Numbers in the table are little-endian, 64 bits; the number of frames has 32 bits. Offsets in the index count bytes of
//! the content, as in a segment that is not compressed.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Size of the content at which a frame ends.
const FRAME_BYTES: usize = 1024 * 1024;

/// Level of compression: three times smaller at 200 MB/s and more.
const LEVEL: i32 = 3;

const SKIPPABLE_FRAME: u32 = 0x184D_2A50;
const TAG: &[u8; 4] = b"TLZ1";

/// Size of the end of the table: content size, number of frames, tag.
const END_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;

/// A segment that is read from a compressed file.
#[derive(Debug)]
pub(super) struct CompressedSegment {
    file: File,
    frames: Vec<Frame>,
    content_size: u64,
    /// Offset of the table in the file.
    table: u64,
    /// The frame that was read last.
    cached: Option<(usize, Vec<u8>)>,
}

/// Beginning of a frame.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// Offset of its content.
    content: u64,
    /// Offset in the file.
    at: u64,
}

/// Writes a compressed copy of a segment, and waits until the disk has it.
pub(super) fn compress(segment: &Path, copy: &Path) -> io::Result<()> {
    let mut lines = BufReader::new(File::open(segment)?);
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(copy)?;
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    let (mut frames, mut content, mut content_size, mut at) = (Vec::new(), Vec::new(), 0, 0);
    loop {
        let read = lines.read_until(b'\n', &mut content)?;
        if content.len() < FRAME_BYTES && read > 0 {
            continue;
        }
        if !content.is_empty() {
            let frame = compressor.compress(&content)?;
            file.write_all(&frame)?;
            frames.push(Frame { content: content_size, at });
            content_size += content.len() as u64;
            at += frame.len() as u64;
            content.clear();
        }
        if read == 0 {
            break;
        }
    }
    file.write_all(&table(&frames, content_size))?;
    file.sync_data()
}

fn table(frames: &[Frame], content_size: u64) -> Vec<u8> {
    let size = frames.len() * ENTRY_BYTES + END_BYTES;
    let mut table = Vec::with_capacity(size + 8);
    table.extend_from_slice(&SKIPPABLE_FRAME.to_le_bytes());
    table.extend_from_slice(&u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes());
    for frame in frames {
        table.extend_from_slice(&frame.content.to_le_bytes());
        table.extend_from_slice(&frame.at.to_le_bytes());
    }
    table.extend_from_slice(&content_size.to_le_bytes());
    table.extend_from_slice(&u32::try_from(frames.len()).unwrap_or(u32::MAX).to_le_bytes());
    table.extend_from_slice(TAG);
    table
}

impl CompressedSegment {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let damaged = || io::Error::new(ErrorKind::InvalidData, "a compressed segment has no table");
        let size = file.metadata()?.len();
        let mut end = [0; END_BYTES];
        file.read_exact_at(&mut end, size.checked_sub(END_BYTES as u64).ok_or_else(damaged)?)?;
        let (numbers, tag) = end.split_at(12);
        if tag != TAG {
            return Err(damaged());
        }
        let content_size = number(&numbers[..8]);
        let entries = number(&numbers[8..]) * ENTRY_BYTES as u64;
        let table = size.checked_sub(END_BYTES as u64 + entries).ok_or_else(damaged)?;
        let mut bytes = vec![0; usize::try_from(entries).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, table)?;
        let frame = |entry: &[u8]| Frame { content: number(&entry[..8]), at: number(&entry[8..]) };
        let frames = bytes.chunks_exact(ENTRY_BYTES).map(frame).collect();
        Ok(Self { file, frames, content_size, table: table.saturating_sub(8), cached: None })
    }

    /// Reads content from an offset, up to the end of its frame. Returns the number of bytes, 0 at the end.
    pub(super) fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset >= self.content_size {
            return Ok(0);
        }
        let index = self.frames.partition_point(|frame| frame.content <= offset).saturating_sub(1);
        if self.cached.as_ref().is_none_or(|(cached, _)| *cached != index) {
            self.cached = Some((index, self.frame(index)?));
        }
        let Some((_, content)) = &self.cached else { return Ok(0) };
        let from = usize::try_from(offset - self.frames[index].content).map_err(io::Error::other)?;
        content.get(from..).unwrap_or_default().read(buffer)
    }

    fn frame(&self, index: usize) -> io::Result<Vec<u8>> {
        let frame = self.frames[index];
        let next = self.frames.get(index + 1).copied().unwrap_or(Frame { content: self.content_size, at: self.table });
        let size = |from: u64, to: u64| usize::try_from(to.saturating_sub(from)).map_err(io::Error::other);
        let mut bytes = vec![0; size(frame.at, next.at)?];
        self.file.read_exact_at(&mut bytes, frame.at)?;
        zstd::bulk::decompress(&bytes, size(frame.content, next.content)?)
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn content_is_the_same_from_every_offset() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, copy) = (folder.path().join("a.log"), folder.path().join("a.log.zst"));
        let line = |at: usize| format!("{at} {}\n", "text ".repeat(at % 400));
        for lines in [0, 1, 3000] {
            let content: String = (0..lines).map(line).collect();
            fs::write(&plain, &content).unwrap();
            compress(&plain, &copy).unwrap();
            let mut segment = CompressedSegment::open(&copy).unwrap();
            for start in (0..=content.len()).step_by(content.len() / 7 + 1) {
                let (mut read, mut buffer) = (Vec::new(), vec![0; 70_000]);
                loop {
                    let count = segment.read_at(&mut buffer, (start + read.len()) as u64).unwrap();
                    if count == 0 {
                        break;
                    }
                    read.extend_from_slice(&buffer[..count]);
                }
                assert!(read == content.as_bytes()[start..], "{lines} lines from {start}");
            }
        }
        assert!(fs::metadata(&copy).unwrap().len() < fs::metadata(&plain).unwrap().len() / 3);
    }

    #[test]
    fn file_without_a_table_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log.zst");
        for content in [&b""[..], b"too short", b"long enough to have a table, but without its tag"] {
            fs::write(&path, content).unwrap();
            assert!(CompressedSegment::open(&path).is_err());
        }
    }
}
