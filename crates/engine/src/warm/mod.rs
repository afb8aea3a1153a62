//! Warm lines: processes that are up before anybody asks, and those that hold a conversation which may go on.
//!
//! A CLI takes seconds to start. A line is the same CLI started ahead of its turn, greeted (`core/live`), and left to
//! wait. It is another way to run a provider, not another provider: a turn that finds one ready uses it, any other turn
//! starts its own process, and the events are the same. Nothing here can make a turn fail that would have gone well: a
//! line that turns out to be dead is followed by a process of the turn's own.
//!
//! ```text
//!            boot, off the turn's path            take                    the turn ends well
//! nothing ───────────────────────────▶ ready ───────────▶ a turn ──────────────────────────▶ kept for its session
//!    ▲                                   │                  ▲  │ badly                            │   │
//!    └── idle, stale, in the way ────────┴──────────────────│──┴──────────────────────────────────┘   │
//!                                                           └──────── the session's next turn ◀───────┘
//! ```
//!
//! **What may use what.** A process is what it was started as: program, arguments, environment, folder, greeting. All
//! that is a [`Boot`], made by the same code as the command of a cold run. A turn takes a line only if its own boot is
//! *equal*, and if no file has changed since that the CLI reads when it starts ([`Stamps`]). So a new configuration, an
//! updated program or an edited `CLAUDE.md` needs no special care: their lines fit no turn any more.
//!
//! **Never two conversations.** A line that was spoken to is only ever given to a turn of the session it was spoken to
//! in; otherwise it ends. A session's line ends, too, before the session goes on in any other process, and is not used
//! again after another gateway has spoken in it ([`marks`]).
//!
//! **How many.** None before the first turn of its kind; after it, as many as would have been taken while one starts
//! ([`demand`]), each for some minutes after its kind was last wanted. `warm: N` of a model asks for N of the model's own
//! kind, from the start and for good; `warm: 0` for none. All together are bounded in number and in memory
//! ([`Budget`]): who was wanted least recently makes room.

mod boot;
mod demand;
mod figures;
mod line;
mod marks;
mod pool;
mod shelf;
mod stamps;

pub(crate) use boot::{Boot, Wish};
pub(crate) use demand::{Demand, IDLE};
pub use figures::Figures;
pub(crate) use line::WarmProcess;
pub use pool::Budget;
pub(crate) use pool::{Taken, WarmPool};
pub(crate) use stamps::Stamps;
