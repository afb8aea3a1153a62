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
//! use trunkline_store::{ClientId, NewSession, Store};
//!
//! let store = Store::in_memory().await?;
//! let owner = ClientId::local();
//! let new = NewSession { owner: &owner, model: "m", provider: "codex", repo: "/repo".as_ref(), begins: "Hi", parent: None };
//! let session = store.session_begin(&new).await?;
//! assert_eq!(store.session(&session.id, &owner).await?, Some(session));
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
pub use session::{ClientId, NewSession, SessionFilter, SessionKey, SessionRow};
pub use session_turn::{ChainCondition, SessionTurn};
pub use status::DatabaseStatus;
pub use store::{DATABASE_FILE, Store};
pub use time::Time;

// TODO rename users, then remove these aliases.
#[doc(hidden)]
pub use archive::{
    ArchiveRecord as Record, ArchiveTotals as Kept, ExportFilter as Selection, InFlight as OnItsWay,
    WriterTask as Keeping,
};
#[doc(hidden)]
pub use chain::HistoryHash as Hash;
#[doc(hidden)]
pub use idempotency::{ClaimResult as Claimed, IdempotencyClaim as Claim};
#[doc(hidden)]
pub use run::RunOutcome as Outcome;
#[doc(hidden)]
pub use runs::RunFilter as Runs;
#[doc(hidden)]
pub use session::{ClientId as Owner, SessionFilter as Filter};
#[doc(hidden)]
pub use session_turn::ChainCondition as Leads;
#[doc(hidden)]
pub use status::DatabaseStatus as Condition;
#[doc(hidden)]
pub use store::DATABASE_FILE as FILE;
