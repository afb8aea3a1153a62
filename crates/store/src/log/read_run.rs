//! Reads the records of one run, wherever its lines are.

use std::io::{self, ErrorKind};

use super::folder::LogFolder;
use super::position::LogPosition;
use super::record::LogRecord;
use super::segment_reader::SegmentReader;

/// Reader of the records of one run, from its first line on. Other runs' lines are skipped without parsing them.
#[derive(Debug)]
pub struct RunLogReader {
    folder: LogFolder,
    run: String,
    position: LogPosition,
    segment: Option<SegmentReader>,
    /// Whether the first record has been read.
    found: bool,
    /// Whether the writer has started another segment since this one was read to its end.
    sealed: bool,
    /// Whether the last record has been read.
    over: bool,
}

impl RunLogReader {
    pub(crate) fn new(folder: &LogFolder, run: &str, position: &LogPosition) -> Self {
        Self {
            folder: folder.clone(),
            run: run.to_owned(),
            position: position.clone(),
            segment: None,
            found: false,
            sealed: false,
            over: false,
        }
    }

    /// Reads the next record. None after the last record of the run, or if the next one is not written yet.
    pub fn next_record(&mut self) -> io::Result<Option<LogRecord>> {
        while !self.over {
            if self.segment.is_none() && !self.open()? {
                return Ok(None);
            }
            if let Some(record) = self.next_in_segment()? {
                self.over = matches!(record, LogRecord::Ended(_));
                return Ok(Some(record));
            }
            if self.segment.is_none() {
                continue;
            }
            let next = self.position.segment + 1;
            if !self.sealed {
                // The writer may have added lines before it started another segment: read once more.
                self.sealed = self.folder.has_segment(&self.position.process, next);
                if !self.sealed {
                    return Ok(None);
                }
                continue;
            }
            self.position = LogPosition { segment: next, offset: 0, ..self.position.clone() };
            (self.segment, self.sealed) = (None, false);
        }
        Ok(None)
    }

    /// Whether the last record of the run has been read.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Opens the segment. False if the run has been deleted.
    fn open(&mut self) -> io::Result<bool> {
        let LogPosition { process, segment, offset } = &self.position;
        match self.folder.open_segment(process, *segment, *offset) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => self.segment = Some(opened?),
        }
        Ok(true)
    }

    /// Reads the next record in the open segment. If the run does not begin at its position, because the segment was
    /// rewritten since, the segment is closed, to be read from its first line.
    fn next_in_segment(&mut self) -> io::Result<Option<LogRecord>> {
        let Some(segment) = &mut self.segment else { return Ok(None) };
        let exact = Some(self.position.offset).filter(|offset| !self.found && *offset > 0);
        while let Some((offset, line)) = segment.next()? {
            let is_ours = line.run == self.run;
            let record = is_ours.then(|| serde_json::from_slice(line.record).ok()).flatten();
            let begins_here = exact == Some(offset) && matches!(record, Some(LogRecord::Accepted(_)));
            if exact.is_some() && !begins_here {
                break;
            }
            if is_ours {
                self.found = true;
            }
            if record.is_some() {
                return Ok(record);
            }
        }
        if exact.is_some() {
            self.position.offset = 0;
            (self.segment, self.sealed) = (None, false);
        }
        Ok(None)
    }
}
