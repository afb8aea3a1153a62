//! The persistent state of the gateway: the run log, which is the record of every run, an SQLite file with an index of the
//! log, and another one with the state of bridges.
//!
//! | Tables | Content | Modules |
//! |---|---|---|
//! | `turns`, `segments` | the index of runs, and how far each log is indexed | `run_index`, `runs`, `index` |
//! | `sessions` | conversations, and the provider's id for resuming each | `session`, `session_state` |
//! | `chains` | hashes of histories that lead to a session | `chain` |
//! | `repeats` | idempotency keys | `idempotency` |
//! | `cursors`, `inbox`, `bindings`, in a file of their own | state of a bridge to a chat service | `bridge` |
//!
//! Several processes have the files open at once. Every write takes the write lock first and holds it for one short
//! transaction. Readers never wait. This crate makes no decisions: the caller checks which client owns what and masks
//! secrets, and a turn can continue without the store after any [`StoreError`].
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let folder = tempfile::tempdir().unwrap();
//! # let state = folder.path();
//! use std::sync::Arc;
//! use tokio_util::sync::CancellationToken;
//! use trunkline_store::{
//!     ClientId, DATABASE_FILE, Durability, LogRecord, LogWriter, Purpose, RunAccepted, RunRow, RunState, Store, log_line,
//! };
//!
//! let store = Store::open(&state.join(DATABASE_FILE)).await?;
//! let log = Arc::new(LogWriter::new(state, Durability::Process));
//! let (feed, task) = store.index(Some(Arc::clone(&log)));
//! let accepted = RunAccepted { owner: ClientId::local(), prompt: "Hi".into(), ..RunAccepted::default() };
//! let mut line = Vec::new();
//! log_line(&mut line, "run-1", &LogRecord::Accepted(accepted.clone().into()));
//! // The log first, then the index.
//! log.append(&line, Purpose::Accept, |at| feed.add(RunRow::accepted("run-1", &accepted, at.position())))?;
//! let stop = CancellationToken::new();
//! stop.cancel();
//! task.run(stop).await;
//! let run = store.run("run-1", Some(&ClientId::local())).await?;
//! assert_eq!(run.map(|run| run.state), Some(RunState::Queued));
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

mod bridge;
mod chain;
mod columns;
mod connections;
mod error;
mod excess;
mod hex;
mod history;
mod idempotency;
mod index;
mod integrity;
mod log;
mod merge;
mod opening;
mod prune;
mod run;
mod run_index;
mod runs;
mod schema;
mod session;
mod session_state;
mod status;
mod store;
#[cfg(any(test, feature = "test-util"))]
mod test_util;
mod time;
mod transaction;
mod upgrade;

pub use bridge::{Binding, BridgeDatabase, InboxRow, InboxState};
pub use error::StoreError;
pub use excess::LogLimits;
pub use history::{EventRow, ExportFilter, TurnRow};
pub use idempotency::{ClaimResult, IdempotencyClaim};
pub use index::{HeadCondition, InFlight, IndexFeed, IndexTask};
pub use log::line::append as log_line;
pub use log::line::is_run_id;
pub use log::{
    CurrentAttempt, Durability, Extent, ExtentReader, KeyClaim, LOG_FOLDER, LogPosition, LogRecord, LogWriter, Purpose,
    RunAccepted, RunContinued, RunEnded, RunExtents, RunLogEntry, RunLogReader, RunStarted, RunWorkspace,
};
pub use prune::Pruned;
pub use run::{LogState, RunFailure, RunOutcome, RunState, Surface};
pub use run_index::RunRow;
pub use runs::RunFilter;
pub use schema::BRIDGE_FILE;
pub use session::SessionFilter;
pub use session_state::{ClientId, HistoryHash, SessionHead, SessionKey, SessionRow, SessionState, first_words};
pub use status::DatabaseStatus;
pub use store::{DATABASE_FILE, Store};
#[cfg(any(test, feature = "test-util"))]
pub use test_util::NewSession;
pub use time::Time;
