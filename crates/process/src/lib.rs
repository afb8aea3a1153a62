//! Starts processes, keeps them, and leaves none behind.
//!
//! The gateway runs other people's programs: they fork, start daemons, ignore signals, hang, flood and crash, and so
//! may the gateway itself. This crate's promise is that when a run is over, or the gateway is (`kill -9` included), not
//! one process of it is left, neither running nor as a zombie. It is the only code that starts processes.
//!
//! # Why keepers
//!
//! A process group is left with `setsid`, an environment mark with `env -i`, and a parent-death signal reaches only the
//! direct child. What a process cannot leave is its ancestry, provided that an ancestor stays: orphans go to the nearest
//! *child subreaper* above them. So each run has one of its own, a **keeper**: this binary, executed again.
//!
//! ```text
//! gateway ──socket──▶ keeper ──▶ claude ──▶ node, git, a shell in its own session
//!    │                  ▲                       │
//!    │                  └─── a daemon ◀─────────┘  orphaned: now the keeper's child
//!    └──pipes, files──────────▶ claude's stdin, stdout, stderr
//! ```
//!
//! - The main process ends: the keeper says so at once, kills whatever still descends from it, reaps until nothing is
//!   left, and says that too.
//! - The run is to stop: the keeper signals the main process's group and, after a grace, kills all descendants.
//! - The gateway ends, in whatever way: the kernel closes the socket, and the keeper kills everything and ends.
//! - A keeper ends unasked: the gateway is a subreaper as well, inherits the orphans, and ends every child of its own
//!   that is not a keeper. Hence nothing else in the gateway may start a process.
//!
//! The pipes and files go from the gateway straight to the program, passed through the socket as descriptors; no byte of
//! output ever goes through a keeper.
//!
//! # Why they are reused
//!
//! A keeper of its own for each run would double the cost of a start. A keeper that has reported itself clean has no
//! children and no state, so it goes back to a pool, and a run costs what a bare spawn costs: one `posix_spawn`, plus a
//! message there and two back (docs/BENCHMARKS.md has the figures: a fraction of a millisecond). It also spares
//! the gateway, large and multi-threaded, from forking at all.
//!
//! # How to use it
//!
//! `main` calls [`keeper_main`] before anything else when it was started with `__keeper`. Then:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use trunkline_core::limits::Limits;
//! # use trunkline_process::{KeeperProgram, Keepers, Spec, Step, StopSignal};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let keepers = Keepers::new(KeeperProgram::this_binary(), 2)?;
//! let mut running = keepers
//!     .spawn(Spec {
//!         program: "claude".into(),
//!         args: vec!["-p".into()],
//!         env: vec![("PATH".into(), "/usr/bin".into())],
//!         cwd: "/tmp".into(),
//!         stdin: b"say hello".to_vec(),
//!         stop: StopSignal::Term,
//!         grace: Duration::from_secs(5),
//!         limits: Limits { total: Duration::from_secs(3600), ..Limits::NONE },
//!         confinement: None,
//!     })
//!     .await?;
//! loop {
//!     match running.next().await {
//!         Step::Stdout(chunk) => print!("{}", String::from_utf8_lossy(&chunk)),
//!         Step::Exited(exit) => break println!("{exit:?}"),
//!         Step::Limit(overrun) => break println!("{overrun}; dropping the run stops it"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What holds where
//!
//! - [`Running`] serves stdin, stdout, stderr, keeper and limits together, without tasks or channels. A caller that does
//!   not read slows the program down; stderr is always read, and its last 64 KiB kept.
//! - Agents get a file in memory for their stdout (`spool.rs`): a pipe loses what a Node program has not written when it
//!   exits. A reader that falls 32 MiB behind has the program stand still.
//! - A run that its caller drops goes on in the janitor's hands (`janitor.rs`) until it is over;
//!   [`Keepers::shutdown`] waits for that.
//! - A process that cannot be killed (uninterruptible, or another user's) takes its keeper out of service, not the
//!   gateway: after some seconds the run counts as over, and a warning says so.
//!
//! - A run with a [`Confinement`] writes only where it may (`confinement.rs`). The keeper starts it from a thread that has
//!   confined itself and does nothing else: the program inherits the thread's bounds, the keeper has none.
//!
//! A run without one may signal, stop or kill its keeper, being the same user; that ends the run, no more. Limits on
//! memory or the number of processes are for cgroups and the like.

mod clock;
mod closed;
mod confinement;
mod family;
mod files;
mod janitor;
mod keeper;
mod link;
mod message;
mod output;
mod pipes;
mod pool;
mod pulse;
mod run;
mod running;
mod spec;
mod spool;
mod sweep;

pub use closed::close_to_others;
pub use confinement::{Confinement, Landlock, Missing};
pub use files::{open_files, raise_open_files};
pub use keeper::keeper_main;
pub use link::KeeperProgram;
pub use output::{Cut, Output};
pub use pool::Keepers;
pub use running::{Running, Step};
pub use spec::{Exit, SpawnError, Spec, StopSignal};
pub use sweep::end_marked;
