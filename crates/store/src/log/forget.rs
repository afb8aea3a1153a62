//! Deletes runs from the log: rewrites the segments that they are in.

use std::collections::{HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use super::folder::{COPY_EXTENSION, LogFolder, ProcessSegments};
use super::line;
use super::position::LogPosition;
use super::segment_reader::SegmentReader;

impl LogFolder {
    /// Removes all records of these runs, except from segments that a process may still write, or that are not indexed up
    /// to their end. Returns the runs that such segments still have. `indexed` is the position up to which each process is
    /// indexed.
    pub(crate) fn forget(
        &self,
        runs: &HashSet<String>,
        indexed: &HashMap<Arc<str>, LogPosition>,
    ) -> io::Result<HashSet<String>> {
        let mut left = HashSet::new();
        let processes = self.processes()?;
        if processes.is_empty() {
            return Ok(left);
        }
        // Others may rewrite at the same time, to the same copies.
        let _lock = self.lock_rewriting()?;
        self.remove_copies()?;
        for process in processes {
            // Looked at again: the process may have started while the folder was listed.
            let has_lock = self.has_lock(&process.process);
            let complete = |number: u32| {
                !has_lock || indexed.get(&process.process).is_some_and(|position| number < position.segment)
            };
            for &number in &process.segments {
                let segment = (&*process.process, number);
                if complete(number) { self.rewrite(segment, runs)? } else { self.find(segment, runs, &mut left)? }
            }
            self.remove_empty(&process, has_lock)?;
        }
        Ok(left)
    }

    /// Removes empty segments, except between others: a reader goes from one number to the next.
    fn remove_empty(&self, process: &ProcessSegments, has_lock: bool) -> io::Result<()> {
        let paths: Vec<_> =
            process.segments.iter().map(|number| self.segment_path(&process.process, *number)).collect();
        let is_empty = |path: &&std::path::PathBuf| fs::metadata(path).is_ok_and(|file| file.len() == 0);
        let first = paths.iter().take_while(is_empty).count();
        let mut last = 0;
        // The segment that a process has just created is empty, too.
        if !has_lock {
            last = paths[first..].iter().rev().take_while(is_empty).count();
        } else if first == paths.len() {
            return Ok(());
        }
        for path in paths[..first].iter().chain(&paths[paths.len() - last..]) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Opens a segment that may have been removed.
    fn open_existing(&self, (process, number): (&str, u32)) -> io::Result<Option<SegmentReader>> {
        match self.open_segment(process, number, 0) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Adds to `found` each of the runs that has a record in the segment.
    fn find(&self, segment: (&str, u32), runs: &HashSet<String>, found: &mut HashSet<String>) -> io::Result<()> {
        let Some(mut reader) = self.open_existing(segment)? else { return Ok(()) };
        while let Some((_, line)) = reader.next()? {
            if runs.contains(line.run) && !found.contains(line.run) {
                found.insert(line.run.to_owned());
            }
        }
        Ok(())
    }

    /// Replaces a segment by a copy without these runs, which is not compressed.
    fn rewrite(&self, segment: (&str, u32), runs: &HashSet<String>) -> io::Result<()> {
        let Some(mut reader) = self.open_existing(segment)? else { return Ok(()) };
        let mut deleted = 0_u64;
        while let Some((_, line)) = reader.next()? {
            deleted += u64::from(runs.contains(line.run));
        }
        if deleted == 0 {
            return Ok(());
        }
        let path = self.segment_path(segment.0, segment.1);
        let copy = path.with_extension(COPY_EXTENSION);
        let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&copy)?;
        let mut writer = BufWriter::new(file);
        let Some(mut reader) = self.open_existing(segment)? else { return Ok(()) };
        while let Some((_, line)) = reader.next()? {
            if !runs.contains(line.run) {
                line::write(&mut writer, &line)?;
            }
        }
        writer.into_inner().map_err(|error| error.into_error())?.sync_data()?;
        fs::rename(copy, path)?;
        // From here on, readers use the copy.
        match fs::remove_file(self.compressed_path(segment.0, segment.1)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
