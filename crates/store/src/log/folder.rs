//! The folder of the log: names of segments, and locks that tell which processes are alive.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the folder in the state folder.
pub const LOG_FOLDER: &str = "log";

const SEGMENT_SUFFIX: &str = ".log";
const COMPRESSED_SUFFIX: &str = ".zst";
const LOCK_SUFFIX: &str = ".lock";

/// Extension of a segment that is being rewritten.
pub(super) const COPY_EXTENSION: &str = "new";

/// The folder with all segments of a state folder.
#[derive(Debug, Clone)]
pub(crate) struct LogFolder {
    path: Arc<Path>,
}

/// Segments of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessSegments {
    pub(crate) process: Arc<str>,
    /// Numbers of its segments, in order.
    pub(crate) segments: Vec<u32>,
    /// Whether the process had a lock file when it was listed: it was alive, or had been killed.
    pub(crate) has_lock: bool,
}

/// Life of a process that has written to the log.
#[derive(Debug)]
pub(crate) enum ProcessLife {
    Alive,
    /// It was killed, so its segments may have more than the index.
    Killed(ProcessLock),
    /// It has ended, and its segments are indexed.
    Complete,
}

/// The lock of a process. Released by the kernel when the process ends.
#[derive(Debug)]
pub(crate) struct ProcessLock {
    path: PathBuf,
    _lock: File,
}

impl ProcessLock {
    /// Removes the lock file: all segments of the process are indexed.
    pub(crate) fn remove(&self) {
        // The next process to open the log removes it otherwise.
        let _ = fs::remove_file(&self.path);
    }
}

impl LogFolder {
    pub(crate) fn of_state(state: &Path) -> Self {
        Self { path: state.join(LOG_FOLDER).into() }
    }

    pub(crate) fn segment_path(&self, process: &str, number: u32) -> PathBuf {
        self.path.join(format!("{process}.{number}{SEGMENT_SUFFIX}"))
    }

    pub(super) fn compressed_path(&self, process: &str, number: u32) -> PathBuf {
        self.path.join(format!("{process}.{number}{SEGMENT_SUFFIX}{COMPRESSED_SUFFIX}"))
    }

    /// Whether there is a segment, compressed or not.
    pub(crate) fn has_segment(&self, process: &str, number: u32) -> bool {
        self.segment_path(process, number).exists() || self.compressed_path(process, number).exists()
    }

    pub(crate) fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    /// Makes the names of new segments, and of the folder itself, survive a power failure.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        self.path.parent().map_or(Ok(()), |state| File::open(state)?.sync_all())
    }

    /// Waits until no other process rewrites segments. The lock is held until the file is dropped.
    pub(super) fn lock_rewriting(&self) -> io::Result<File> {
        let folder = File::open(&self.path)?;
        folder.lock()?;
        Ok(folder)
    }

    /// Removes copies that a killed process did not finish.
    pub(super) fn remove_copies(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == COPY_EXTENSION) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Lists all processes, in the order in which they started.
    pub(crate) fn processes(&self) -> io::Result<Vec<ProcessSegments>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all = std::collections::BTreeMap::<String, (Vec<u32>, bool)>::new();
        for entry in entries {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(process) = name.strip_suffix(LOCK_SUFFIX) {
                all.entry(process.to_owned()).or_default().1 = true;
            } else if let Some((process, number)) = segment_name(name) {
                all.entry(process.to_owned()).or_default().0.push(number);
            }
        }
        Ok(all
            .into_iter()
            .map(|(process, (mut segments, has_lock))| {
                segments.sort_unstable();
                // A process that was killed while it compressed a segment leaves both files.
                segments.dedup();
                ProcessSegments { process: process.into(), segments, has_lock }
            })
            .collect())
    }

    /// Size of all segments in bytes.
    pub(crate) fn size(&self) -> io::Result<u64> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        // A file may be removed meanwhile.
        Ok(entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum())
    }

    /// Takes the lock of a new process.
    pub(crate) fn lock_new(&self, process: &str) -> io::Result<ProcessLock> {
        self.create()?;
        loop {
            let path = self.lock_path(process);
            let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            lock.lock()?;
            // Another process may have taken the file for that of a dead process, and removed it.
            if lock.metadata()?.nlink() > 0 {
                return Ok(ProcessLock { path, _lock: lock });
            }
        }
    }

    /// Tells whether a process lives, and takes its lock if it does not.
    ///
    /// A lock that another process has taken from a dead one counts as that of a living process.
    pub(crate) fn life(&self, process: &str) -> io::Result<ProcessLife> {
        let path = self.lock_path(process);
        let lock = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ProcessLife::Complete),
            opened => opened?,
        };
        if lock.try_lock().is_err() {
            return Ok(ProcessLife::Alive);
        }
        let removed = lock.metadata()?.nlink() == 0;
        Ok(if removed { ProcessLife::Complete } else { ProcessLife::Killed(ProcessLock { path, _lock: lock }) })
    }

    /// Whether a process lives, or was killed and is not indexed yet.
    pub(super) fn has_lock(&self, process: &str) -> bool {
        self.lock_path(process).exists()
    }

    fn lock_path(&self, process: &str) -> PathBuf {
        self.path.join(format!("{process}{LOCK_SUFFIX}"))
    }
}

fn segment_name(name: &str) -> Option<(&str, u32)> {
    let name = name.strip_suffix(COMPRESSED_SUFFIX).unwrap_or(name);
    let (process, number) = name.strip_suffix(SEGMENT_SUFFIX)?.rsplit_once('.')?;
    Some((process, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_segments_by_process_and_number() {
        let state = tempfile::tempdir().unwrap();
        let folder = LogFolder::of_state(state.path());
        assert_eq!(folder.processes().unwrap(), []);
        let _lock = folder.lock_new("b").unwrap();
        for (process, number) in [("b", 10), ("b", 2), ("a", 0)] {
            fs::write(folder.segment_path(process, number), "").unwrap();
        }
        fs::write(state.path().join("log/other.txt"), "").unwrap();
        let of = |process: &str, segments: &[u32], has_lock| ProcessSegments {
            process: process.into(),
            segments: segments.to_vec(),
            has_lock,
        };
        assert_eq!(folder.processes().unwrap(), [of("a", &[0], false), of("b", &[2, 10], true)]);
    }

    #[test]
    fn lock_is_taken_only_from_a_dead_process() {
        let state = tempfile::tempdir().unwrap();
        let folder = LogFolder::of_state(state.path());
        assert!(matches!(folder.life("a").unwrap(), ProcessLife::Complete));
        let alive = folder.lock_new("a").unwrap();
        assert!(matches!(folder.life("a").unwrap(), ProcessLife::Alive));
        drop(alive);
        let ProcessLife::Killed(dead) = folder.life("a").unwrap() else { panic!("the lock is free") };
        assert!(matches!(folder.life("a").unwrap(), ProcessLife::Alive), "another process has it");
        dead.remove();
        drop(dead);
        assert!(matches!(folder.life("a").unwrap(), ProcessLife::Complete));
    }
}
