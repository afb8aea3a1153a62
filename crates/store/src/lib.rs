//! What is remembered from one start to the next, in one SQLite file: sessions, the chains of messages that lead to
//! them, the archive of turns, which are runs, and how far a bridge has come.
//!
//! Several processes have the file open at once. Everything that writes takes the write lock first and keeps it for one
//! short transaction; readers never wait. Nothing here decides anything: who owns what is the caller's to say, secrets
//! are masked before they come here, and a [`StoreError`] is always something a turn can go on without.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use trunkline_store::{NewSession, Owner, Store};
//!
//! let store = Store::in_memory().await?;
//! let owner = Owner::local();
//! let new = NewSession { owner: &owner, model: "m", provider: "codex", repo: "/repo".as_ref(), begins: "Hi", parent: None };
//! let session = store.session_begin(&new).await?;
//! assert_eq!(store.session(&session.id, &owner).await?, Some(session));
//! # Ok::<_, trunkline_store::StoreError>(()) }).unwrap();
//! ```

mod archive;
mod bridge;
mod chain;
mod columns;
mod condition;
mod error;
mod opening;
mod prune;
mod repeat;
mod run;
mod run_index;
mod runs;
mod schema;
mod session;
mod session_turn;
mod store;
mod time;
mod transaction;

pub use archive::{EventRow, Keeping, Kept, NotQueued, OnItsWay, Record, Selection, Writer};
pub use bridge::{Binding, InboxRow, InboxState};
pub use chain::Hash;
pub use condition::Condition;
pub use error::StoreError;
pub use prune::Pruned;
pub use repeat::{Claim, Claimed};
pub use run::{LogState, Outcome, RunFailure, RunState, Surface};
pub use run_index::{RunRow, TurnBegun, TurnEnded, TurnRow};
pub use runs::Runs;
pub use session::{Filter, NewSession, Owner, SessionKey, SessionRow};
pub use session_turn::{Leads, SessionTurn};
pub use store::{FILE, Store};
pub use time::Time;
