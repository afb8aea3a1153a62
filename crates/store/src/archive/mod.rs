//! The archive: every turn with its events, whichever API it came in through.
//!
//! ```text
//! caller ──ArchiveRecord──▶ Writer ──queue──▶ WriterTask ──one transaction──▶ database
//!                             │                   │
//!                             └────▶ journal ◀────┘ removed once committed
//! ```
//!
//! - [`Writer`] bounds the texts of a record (`bound`), writes it to the journal and queues it. The queue is limited by the
//!   memory its records take (`weight`).
//! - [`WriterTask`] merges deltas of a text (`merge`), collects records for a moment, and writes them in one transaction
//!   (`write`, `statement`, `sessions`).
//! - The journal (`journal`) keeps queued records on disk, so that they survive a kill. Opening the database writes what
//!   killed processes left there (`recovery`).
//! - `read` and `export` read the archive.

mod bound;
mod export;
mod journal;
mod merge;
mod pending;
mod read;
mod record;
mod recovery;
mod sessions;
mod statement;
mod weight;
mod write;
mod writer;
mod writer_task;

pub use export::ExportFilter;
pub use read::EventRow;
pub use record::ArchiveRecord;
pub use writer::{InFlight, NotQueued, Writer};
pub use writer_task::{ArchiveTotals, WriterTask};
