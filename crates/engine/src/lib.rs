//! Runs a turn: finds its model, makes its workspace, starts its CLI, and hands out its events.
//!
//! [`Engine::start`] is the one door for every surface. A [`Run`] is pulled, not pushed: whoever wants the events asks
//! for the next one, a slow reader slows the CLI down through its pipe, and dropping the run stops the CLI. What must
//! happen after that (a worktree to commit, a process to wait for) is the engine's own work, joined at shutdown.

mod agent_file;
mod engine;
mod environment;
mod gate;
mod git;
mod home;
mod launch;
mod owner;
mod plan;
mod program;
mod run;
mod scratch;
mod session;
mod worktree;

pub use engine::{Engine, Models, Settings, StartError};
pub use environment::secret_values;
pub use gate::Caps;
pub use plan::{Plan, ignored as ignored_options};
pub use program::{Located, locate};
pub use run::Run;
