//! Writes the segments of the upgrade.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::old_files::PROCESS;
use crate::log::{LogFolder, LogRecord, line};

/// Size at which a segment is full.
const MAX_SEGMENT_BYTES: u64 = 16 * 1024 * 1024;

/// Segments that get their names only when all of them are complete.
pub(super) struct UpgradeSegments {
    folder: LogFolder,
    current: BufWriter<File>,
    /// Bytes in the current segment.
    written: u64,
    number: u32,
    buffer: Vec<u8>,
}

impl UpgradeSegments {
    /// Creates the first segment, and removes those of an attempt that was not completed.
    pub(super) fn create(folder: &LogFolder) -> io::Result<Self> {
        folder.create()?;
        for process in folder.processes()?.iter().filter(|process| &*process.process == PROCESS) {
            for number in &process.segments {
                fs::remove_file(folder.segment_path(PROCESS, *number))?;
            }
        }
        let current = open(&temporary(folder, 0))?;
        Ok(Self { folder: folder.clone(), current, written: 0, number: 0, buffer: Vec::new() })
    }

    pub(super) fn write(&mut self, run: &str, record: &LogRecord) -> io::Result<()> {
        if self.written >= MAX_SEGMENT_BYTES {
            self.sync()?;
            self.number += 1;
            self.written = 0;
            self.current = open(&temporary(&self.folder, self.number))?;
        }
        self.buffer.clear();
        line::append(&mut self.buffer, run, record);
        self.written += self.buffer.len() as u64;
        self.current.write_all(&self.buffer)
    }

    /// Makes all segments survive a power failure, and gives them their names. The first comes last: with it, the upgrade
    /// is complete.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.sync()?;
        for number in (0..=self.number).rev() {
            fs::rename(temporary(&self.folder, number), self.folder.segment_path(PROCESS, number))?;
        }
        self.folder.sync()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.current.flush()?;
        self.current.get_ref().sync_data()
    }
}

fn temporary(folder: &LogFolder, number: u32) -> PathBuf {
    folder.segment_path(PROCESS, number).with_extension("upgrade")
}

fn open(path: &Path) -> io::Result<BufWriter<File>> {
    let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    Ok(BufWriter::with_capacity(256 * 1024, file))
}
