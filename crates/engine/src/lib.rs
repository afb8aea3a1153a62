//! Runs a turn: finds its model, makes its workspace, starts its CLI, and hands out its events; and when that fails,
//! tries again or elsewhere as [`router`] decides.
//!
//! [`Engine::start`] is the one door for every surface. A [`Run`] is pulled, not pushed: whoever wants the events asks
//! for the next one, a slow reader slows the CLI down through its pipe, and dropping the run stops the CLI. What must
//! happen after that (a worktree to commit, a process to wait for) is the engine's own work, joined at shutdown.

mod agent_file;
mod alive;
mod archive;
mod attempt;
mod begin;
mod belongings;
mod builtin;
mod carrier;
mod compiled;
mod drift;
mod engine;
mod environment;
mod explain;
mod folder;
mod gate;
mod git;
mod health;
mod home;
mod idle;
mod ladder;
mod launch;
mod login;
mod masking;
mod metrics;
mod models;
mod owner;
mod plan;
mod program;
pub mod router;
mod run;
mod runs;
mod sandbox;
mod scratch;
mod session;
mod storage;
#[cfg(test)]
mod test_models;
mod untrusted;
mod warm;
mod worktree;

pub use engine::{Engine, KnownCli, Settings, StartError};
pub use environment::{of_executable, secret_values};
pub use explain::{Explanation, Rung};
pub use folder::same_folder;
pub use gate::{Allowance, Caps, KeyCaps};
pub use git::DEFAULT_GIT_TIMEOUT;
pub use health::{Depth, Examined, Probed, Report, Status};
pub use metrics::{Metrics, Turns};
pub use models::Models;
pub use owner::{name_of_process, process_lives};
pub use plan::{Plan, ignored as ignored_options};
pub use program::{Located, locate};
pub use runs::{
    By, Cancelled, Entry, Follow, Joined, NoDiff, NoRun, NotOnce, Once, Run, forget_logs, run_seen, runs_seen,
};
pub use sandbox::{Bounds, Free};
pub use session::forget_sessions;
pub use trunkline_store::{LogState, RunFailure, RunRow, RunState, Runs};
pub use warm::{Budget, Figures};
