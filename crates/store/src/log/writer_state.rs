//! The segment that a writer writes to, and the disk space that is reserved in it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};

use super::folder::ProcessLock;
use super::segment::Segment;
use super::writer::{Durability, LogWriter, Purpose};

/// Disk space that is reserved at once, ahead of the end of a segment.
const RESERVE_BYTES: u64 = 1024 * 1024;

/// Space that must be reserved when a run is accepted: enough for the end of every run in progress, which is written
/// whether or not the disk has become full meanwhile.
const MIN_RESERVED_BYTES: u64 = 256 * 1024;

#[derive(Debug, Default)]
pub(super) struct WriterState {
    /// Created with the first line.
    pub(super) segment: Option<Arc<Segment>>,
    pub(super) lock: Option<ProcessLock>,
    /// Size of the complete lines.
    pub(super) length: u64,
    /// End of the reserved space.
    pub(super) reserved: u64,
    /// Whether a failed write may have left bytes behind `length`.
    pub(super) torn: bool,
    /// Whether the last write failed.
    pub(super) failing: bool,
}

impl WriterState {
    /// Returns the segment to write to, with room for `length` bytes.
    pub(super) fn prepare(&mut self, log: &LogWriter, length: u64, purpose: Purpose) -> io::Result<Arc<Segment>> {
        if self.lock.is_none() {
            log.operation()?;
            self.lock = Some(log.folder.lock_new(&log.process)?);
        }
        let segment = match &self.segment {
            Some(segment) if self.length < log.max_segment_bytes => Arc::clone(segment),
            Some(full) => {
                let full = Arc::clone(full);
                match self.start(log, full.number + 1) {
                    // The full segment has space for the end of runs in progress, the disk may have none.
                    Err(_) if purpose == Purpose::Continue => full,
                    started => started?,
                }
            }
            None => self.start(log, 0)?,
        };
        if self.torn {
            self.cut(log, &segment)?;
        }
        let wanted = self.length + length + MIN_RESERVED_BYTES;
        if purpose == Purpose::Accept && wanted > self.reserved {
            log.operation()?;
            reserve(&segment, self.length, wanted + RESERVE_BYTES)?;
            self.reserved = wanted + RESERVE_BYTES;
        }
        Ok(segment)
    }

    /// Starts another segment. On an error, the present one stays as it is.
    fn start(&mut self, log: &LogWriter, number: u32) -> io::Result<Arc<Segment>> {
        log.operation()?;
        let path = log.folder.segment_path(&log.process, number);
        // It gets its name once it is certain to be used: readers leave a segment when the next one appears.
        let unused = path.with_extension("start");
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).mode(0o600).open(&unused)?;
        let segment = Segment { file, number };
        let reserved = MIN_RESERVED_BYTES + RESERVE_BYTES;
        let prepared = log.operation().and_then(|()| reserve(&segment, 0, reserved)).and_then(|()| {
            if log.durability == Durability::Fsync {
                // Later lines survive a power failure only together with earlier ones.
                self.segment.as_ref().map_or(Ok(()), |full| full.file.sync_data())?;
            }
            fs::rename(&unused, &path)?;
            if log.durability == Durability::Fsync { log.folder.sync() } else { Ok(()) }
        });
        if let Err(error) = prepared {
            // It has one of these names.
            let _ = fs::remove_file(unused).or_else(|_| fs::remove_file(path));
            return Err(error);
        }
        self.trim();
        let segment = Arc::new(segment);
        let lock = self.lock.take();
        *self = Self { segment: Some(Arc::clone(&segment)), lock, reserved, ..Self::default() };
        Ok(segment)
    }

    /// Cuts the remains of a failed write.
    pub(super) fn cut(&mut self, log: &LogWriter, segment: &Segment) -> io::Result<()> {
        log.operation()?;
        segment.file.set_len(self.length)?;
        // The reserved space is gone, too.
        (self.torn, self.reserved) = (false, 0);
        Ok(())
    }

    /// Cuts the remains of a failed write, and gives back the reserved space. Nothing is written to the segment later.
    pub(super) fn trim(&self) {
        if let Some(segment) = &self.segment {
            // Readers stop at an incomplete line in any case.
            let _ = segment.file.set_len(self.length);
        }
    }
}

/// Reserves disk space without changing the size of the file. File systems without reservation report a full disk when a
/// line is written.
fn reserve(segment: &Segment, from: u64, to: u64) -> io::Result<()> {
    match retry_on_intr(|| fallocate(&segment.file, FallocateFlags::KEEP_SIZE, from, to - from)) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
