//! The run log: the record of every run, in append-only files. Everything in the database about runs and sessions can be
//! rebuilt from it.
//!
//! ```text
//! STATE/log/<process>.<number>.log        segments of one process; only that process appends
//! STATE/log/<process>.<number>.log.zst    old ones, compressed
//! STATE/log/<process>.lock                locked while the process lives; gone once all its segments are indexed
//! ```
//!
//! A segment is a sequence of [lines](line), each with a checksum, the id of a run and a [record](LogRecord). Runs share
//! segments, so a short run costs no file of its own. A process writes to one segment at a time ([`LogWriter`]) and starts
//! another when the segment is full. Lines of one run are in the segments of one process, in order, with one exception: a
//! record about a run that has ended (work that was saved late) may be in a segment of another process.
//!
//! [`RunLogReader`] reads the lines of one run, [`SegmentReader`] all lines of a segment.

mod compress;
mod compressed;
mod extents;
#[cfg(any(test, feature = "test-util"))]
mod fault;
mod folder;
mod forget;
pub(crate) mod line;
mod position;
mod read_run;
mod record;
mod segment;
mod segment_reader;
#[cfg(test)]
mod test_log;
mod writer;
mod writer_state;
#[cfg(test)]
mod writer_tests;

pub use extents::{ExtentReader, RunExtents};
pub use folder::LOG_FOLDER;
pub(crate) use folder::{LogFolder, ProcessLife, ProcessSegments};
pub use position::LogPosition;
pub use read_run::RunLogReader;
pub use record::{
    CurrentAttempt, KeyClaim, LogRecord, RunAccepted, RunContinued, RunEnded, RunLogEntry, RunStarted, RunWorkspace,
};
pub use segment::Extent;
pub use writer::{Durability, LogWriter, Purpose};
