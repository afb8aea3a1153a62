//! Starts processes, supervises them, and leaves none behind.
//!
//! The gateway runs other people's programs: they fork, start daemons, ignore signals, hang, flood their output and crash,
//! and the gateway itself may crash. This crate guarantees that when a run or the gateway has ended (`kill -9` included),
//! no process of it is left, neither running nor as a zombie. It is the only code that starts processes.
//!
//! # Why keepers
//!
//! A process leaves its process group with `setsid` and an environment mark with `env -i`, and a parent-death signal
//! reaches only the direct child. A process cannot leave its ancestry, provided that an ancestor stays alive: orphans are
//! adopted by the nearest *child subreaper* above them. So each run has a subreaper of its own, a **keeper**: this binary,
//! executed again.
//!
//! ```text
//! gateway ──socket──▶ keeper ──▶ claude ──▶ node, git, a shell in its own session
//!    │                  ▲                       │
//!    │                  └─── a daemon ◀─────────┘  orphaned: now the keeper's child
//!    └──pipes, files──────────▶ claude's stdin, stdout, stderr
//! ```
//!
//! - When the main process ends, the keeper reports it at once, kills all remaining descendants, reaps until none is left,
//!   and reports that too.
//! - To stop a run, the keeper signals the group of the main process and, after a grace period, kills all descendants.
//! - When the gateway ends, for whatever reason, the kernel closes the socket, and the keeper kills everything and ends.
//! - When a keeper ends unexpectedly, the gateway, which is a subreaper as well, inherits the orphans and kills every child
//!   that is not a keeper. Hence nothing else in the gateway may start a process.
//!
//! The pipes and files connect the gateway with the program directly, passed through the socket as descriptors. No output
//! goes through a keeper. A short input is part of the request, and the keeper puts it into a pipe.
//!
//! # Why keepers are reused
//!
//! A new keeper for each run would double the cost of a start. A keeper that has reported itself clean has no children and
//! no state, so it returns to a pool, and a run costs what a bare spawn costs: one `posix_spawn`, plus one request and two
//! reports (docs/BENCHMARKS.md has the figures: a fraction of a millisecond). It also means that the gateway, large and
//! multi-threaded, never forks.
//!
//! # How to use it
//!
//! When the binary was started with `__keeper`, `main` calls [`keeper_main`] before anything else. Otherwise:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use trunkline_core::limits::RunLimits;
//! # use trunkline_process::{KeeperProgram, Keepers, ProcessEvent, Spec, StopSignal};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let keepers = Keepers::new(KeeperProgram::this_binary(), 2)?;
//! let mut process = keepers
//!     .spawn(Spec {
//!         program: "claude".into(),
//!         args: ["-p"].into_iter().collect(),
//!         env: [("PATH", "/usr/bin")].into_iter().collect(),
//!         cwd: "/tmp".into(),
//!         stdin: b"say hello".to_vec(),
//!         stop: StopSignal::Term,
//!         grace: Duration::from_secs(5),
//!         limits: RunLimits { total: Duration::from_secs(3600), ..RunLimits::NONE },
//!         confinement: None,
//!     })
//!     .await?;
//! loop {
//!     match process.next().await {
//!         ProcessEvent::Stdout(chunk) => print!("{}", String::from_utf8_lossy(&chunk)),
//!         ProcessEvent::Exited(exit) => break println!("{exit:?}"),
//!         ProcessEvent::Limit(overrun) => break println!("{overrun}; dropping the process stops it"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees and limits
//!
//! - [`RunningProcess`] serves stdin, stdout, stderr, keeper and limits together, without tasks or channels. A caller that
//!   does not read slows the program down. Stderr is always read, and its last 64 KiB are kept.
//! - Agents get a file in memory as their stdout (`spool.rs`): with a pipe, a Node program loses what it has not written
//!   when it exits. If the reader falls 32 MiB behind, the program is paused.
//! - A program whose caller drops it is ended by a task of the janitor (`janitor.rs`). [`Keepers::shutdown`] waits for it.
//! - A process that cannot be killed (uninterruptible, or another user's) takes its keeper out of service, not the
//!   gateway: after some seconds the run counts as over, and a warning is logged.
//! - A program with a [`Confinement`] can only write to the places it names (`confinement.rs`). The keeper starts it from
//!   a thread that confines itself and does nothing else: the program inherits the restriction, the keeper does not.
//!
//! A program without one may signal, stop or kill its keeper, because it runs as the same user. That ends its run and has
//! no other effect. Limits on memory or the number of processes are left to cgroups and the like.

mod argument_list;
mod awake;
mod confinement;
mod descendants;
mod driver;
mod encoding;
mod environment;
mod files;
mod janitor;
mod keeper;
mod limit_clock;
mod link;
mod marked;
mod message;
mod output;
mod pipes;
mod pool;
mod readiness;
mod running;
mod spec;
mod spool;
mod undumpable;

pub use argument_list::ArgumentList;
pub use confinement::{Confinement, Landlock, LandlockUnavailable};
pub use environment::Environment;
pub use files::{open_files, raise_open_files};
pub use keeper::keeper_main;
pub use link::KeeperProgram;
pub use marked::kill_marked_processes;
pub use output::{Cut, Output};
pub use pool::Keepers;
pub use running::RunningProcess;
pub use spec::{ProcessEvent, ProcessExit, SpawnError, Spec, StopSignal};
pub use undumpable::set_undumpable;
