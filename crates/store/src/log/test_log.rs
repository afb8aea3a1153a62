//! A log to be filled and read by the tests.

use super::segment_reader::SegmentReader;
use super::*;
use crate::time::Time;

/// A log in a folder of its own, with segments that are full after a few lines.
pub(super) struct TestLog {
    state: tempfile::TempDir,
    pub(super) writer: LogWriter,
}

impl TestLog {
    pub(super) fn new(segment_bytes: u64) -> Self {
        let state = tempfile::tempdir().unwrap();
        let writer = LogWriter::new(state.path(), Durability::Process).segment_bytes(segment_bytes);
        Self { state, writer }
    }

    pub(super) fn folder(&self) -> LogFolder {
        LogFolder::of_state(self.state.path())
    }

    pub(super) fn append(&self, run: &str, record: &LogRecord) -> std::io::Result<Extent> {
        let mut lines = Vec::new();
        line::append(&mut lines, run, record);
        self.writer.append(&lines, Purpose::Continue, Extent::clone)
    }

    pub(super) fn write(&self, run: &str, record: &LogRecord) -> Extent {
        self.append(run, record).unwrap()
    }

    /// Names of the runs in a segment, line by line.
    pub(super) fn runs_in(&self, number: u32) -> Vec<String> {
        let mut reader = self.reader(number);
        let mut runs = Vec::new();
        while let Some((_, line)) = reader.next().unwrap() {
            runs.push(line.run.to_owned());
        }
        runs
    }

    pub(super) fn reader(&self, number: u32) -> SegmentReader {
        self.folder().open_segment(self.writer.process(), number, 0).unwrap()
    }

    /// Reads the providers of a run's `Started` records.
    pub(super) fn read(&self, run: &str, position: &LogPosition) -> Vec<String> {
        let mut reader = RunLogReader::new(&self.folder(), run, position);
        let records = std::iter::from_fn(|| reader.next_record().unwrap());
        records.map(|record| provider(&record)).collect()
    }
}

pub(super) fn accepted() -> LogRecord {
    LogRecord::Accepted(RunAccepted { prompt: "p".into(), ..RunAccepted::default() }.into())
}

pub(super) fn started(provider: &str) -> LogRecord {
    LogRecord::Started(RunStarted { at: Time::from_millis(1), provider: provider.into() })
}

pub(super) fn provider(record: &LogRecord) -> String {
    match record {
        LogRecord::Accepted(_) => "accepted".into(),
        LogRecord::Started(started) => started.provider.clone(),
        LogRecord::Continued(_)
        | LogRecord::Event(_)
        | LogRecord::Workspace(_)
        | LogRecord::Session(_)
        | LogRecord::Ended(_) => panic!("{record:?}"),
    }
}
