//! The index: the database rows of runs and sessions, written behind the log.
//!
//! ```text
//! engine ──line──▶ LogWriter (the truth)
//!    └────row────▶ IndexFeed ──batches──▶ IndexTask ──one transaction──▶ database
//! ```
//!
//! - [`IndexFeed`] holds the rows that the database does not have yet. Queries of this process read them first.
//! - [`IndexTask`] writes them, at most once in 200 ms, together with the position in the log up to which everything is
//!   indexed.
//! - `catch_up` indexes what a killed process left behind that position. A new database has no positions, so it is filled
//!   from the whole log.
//! - `replaced_file` does so while the process runs, when the file was deleted.

pub(crate) mod catch_up;
mod feed;
mod log_rows;
mod replaced_file;
mod statement;
mod task;
pub(crate) mod upsert;

pub use feed::{HeadCondition, InFlight, IndexFeed};
pub use task::IndexTask;
