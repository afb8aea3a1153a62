//! The persistent state of the gateway, in one SQLite file.
//!
//! | Tables | Content | Modules |
//! |---|---|---|
//! | `sessions` | conversations, and the provider's id for resuming each | `session`, `session_turn` |
//! | `chains` | hashes of histories that lead to a session | `chain` |
//! | `turns`, `events` | the archive of turns, which is also the index of runs | `run`, `run_index`, `runs`, `archive` |
//! | `repeats` | idempotency keys | `idempotency` |
//! | `cursors`, `inbox`, `bindings` | state of a bridge to a chat service | `bridge` |
//!
//! Several processes have the file open at once. Every write takes the write lock first and holds it for one short
//! transaction. Readers never wait. This crate makes no decisions: the caller checks which client owns what and masks
//! secrets, and a turn can continue without the store after any [`StoreError`].
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! use tokio_util::sync::CancellationToken;
//! use trunkline_store::{ArchiveRecord, ClientId, DATABASE_FILE, RunState, Store, TurnBegun};
//!
//! let store = Store::open(&folder.join(DATABASE_FILE)).await?;
//! let (writer, task) = store.writer();
//! let begun = TurnBegun { run: "run-1".into(), owner: ClientId::local(), prompt: "Hi".into(), ..TurnBegun::default() };
//! writer.send(ArchiveRecord::Begun(begun)).await?;
//! drop(writer); // the task ends when all writers are dropped
//! task.run(CancellationToken::new()).await;
//! let run = store.run("run-1", Some(&ClientId::local())).await?;
//! assert_eq!(run.map(|run| run.state), Some(RunState::Queued));
//! # Ok::<_, trunkline_store::StoreError>(()) }).unwrap();
//! ```

mod archive;
mod bridge;
mod chain;
mod columns;
mod error;
mod idempotency;
mod integrity;
mod opening;
mod prune;
mod run;
mod run_index;
mod runs;
mod schema;
mod session;
mod session_turn;
mod status;
mod store;
#[cfg(any(test, feature = "test-util"))]
mod test_util;
mod time;
mod transaction;

pub use archive::{ArchiveRecord, ArchiveTotals, EventRow, ExportFilter, InFlight, NotQueued, Writer, WriterTask};
pub use bridge::{Binding, InboxRow, InboxState};
pub use chain::HistoryHash;
pub use error::StoreError;
pub use idempotency::{ClaimResult, IdempotencyClaim};
pub use prune::Pruned;
pub use run::{LogState, RunFailure, RunOutcome, RunState, Surface};
pub use run_index::{RunRow, TurnBegun, TurnEnded, TurnRow};
pub use runs::RunFilter;
pub use session::{ClientId, SessionFilter, SessionKey, SessionRow};
pub use session_turn::{ChainCondition, SessionTurn};
pub use status::DatabaseStatus;
pub use store::{DATABASE_FILE, Store};
#[cfg(any(test, feature = "test-util"))]
pub use test_util::NewSession;
pub use time::Time;
