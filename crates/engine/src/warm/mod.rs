//! Warm processes: CLIs that are started ahead of their turn, and CLIs that are kept for the next turn of their
//! session.
//!
//! A CLI takes seconds to start. A warm process is the same CLI, started and greeted (`core/live`) before a turn needs
//! it. It is another way to run a provider, not another provider: a turn that finds one ready uses it, any other turn
//! starts a new process, and the events are the same. A warm process never makes a turn fail that would have succeeded:
//! if it turns out to be dead, the turn starts a new process.
//!
//! ```text
//!            boot, in the background             take                    the turn succeeds
//! nothing ───────────────────────────▶ ready ───────────▶ a turn ──────────────────────────▶ kept for its session
//!    ▲                                   │                  ▲  │ fails                            │   │
//!    └── idle, stale, evicted ───────────┴──────────────────│──┴──────────────────────────────────┘   │
//!                                                           └──────── the session's next turn ◀───────┘
//! ```
//!
//! **Matching.** A process is defined by what it was started with: program, arguments, environment, folder, greeting.
//! That is a [`BootSpec`], made by the same code as the command of a cold run. A turn takes a process only if its own
//! `BootSpec` is *equal*, and if no file that the CLI reads at its start has changed since ([`FileStamps`]). So a new
//! configuration, an updated program or an edited `CLAUDE.md` needs no special handling: the old processes match no
//! turn any more.
//!
//! **One conversation per process.** A process that has run a turn is only given to turns of the same session;
//! otherwise it ends. It also ends before its session continues in any other process, and is not used again after
//! another gateway has run a turn in the session ([`session_marks`]).
//!
//! **Number.** None before the first turn of its kind. After it, as many as are taken while one starts ([`usage`]),
//! each for some minutes after the last use of its kind. `warm: N` of a model asks for N processes of the model's own
//! kind, from the start and permanently; `warm: 0` for none. The total is bounded in number and in memory
//! ([`WarmBudget`]): the least recently used process is evicted first.

mod boot;
mod budget;
mod file_stamps;
mod inventory;
mod pool;
mod process;
mod session_marks;
mod stats;
mod usage;

pub(crate) use boot::{BootSpec, WarmTarget};
pub use budget::WarmBudget;
pub(crate) use file_stamps::FileStamps;
pub(crate) use pool::{TakenProcess, WarmPool};
pub(crate) use process::WarmProcess;
pub use stats::WarmStats;
pub(crate) use usage::{IDLE_TIMEOUT, UsageHistory};
