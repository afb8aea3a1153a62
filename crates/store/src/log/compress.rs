//! Compresses old segments.

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::compressed::compress;
use super::folder::{COPY_EXTENSION, LogFolder};
use super::position::LogPosition;

impl LogFolder {
    /// Compresses segments that were not written to for `age`, except those that a process may still write, or that are
    /// not indexed up to their end. Returns the number of bytes that were saved.
    pub(crate) fn compress_old(&self, age: Duration, indexed: &HashMap<Arc<str>, LogPosition>) -> io::Result<u64> {
        let Some(oldest) = SystemTime::now().checked_sub(age) else { return Ok(0) };
        let processes = self.processes()?;
        if processes.is_empty() {
            return Ok(0);
        }
        let _lock = self.lock_rewriting()?;
        self.remove_copies()?;
        let mut saved = 0;
        for process in processes {
            let has_lock = self.has_lock(&process.process);
            let complete = |number: u32| {
                !has_lock || indexed.get(&process.process).is_some_and(|position| number < position.segment)
            };
            for &number in process.segments.iter().filter(|number| complete(**number)) {
                saved += self.compress_segment(&process.process, number, oldest)?;
            }
        }
        Ok(saved)
    }

    /// Returns the number of bytes that were saved.
    fn compress_segment(&self, process: &str, number: u32, oldest: SystemTime) -> io::Result<u64> {
        let path = self.segment_path(process, number);
        let before = match fs::metadata(&path) {
            // It is compressed already, or was removed.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            found => found?,
        };
        if before.modified()? > oldest {
            return Ok(0);
        }
        let copy = path.with_extension(COPY_EXTENSION);
        compress(&path, &copy)?;
        let size = fs::metadata(&copy)?.len();
        fs::rename(copy, self.compressed_path(process, number))?;
        fs::remove_file(path)?;
        Ok(before.len().saturating_sub(size))
    }
}
