//! Runs turns: finds the model, prepares the workspace, starts the CLI and yields its events. A failed attempt is retried, or
//! another provider is tried, as [`router`] decides.
//!
//! [`Engine::start`] is the entry point for every surface. A [`Run`] is pulled, not pushed: the caller asks for the next
//! event, a slow reader slows the CLI down, and dropping the run stops the CLI. Cleanup that outlives the run (committing a
//! worktree, waiting for a process) runs in tasks that the engine joins at shutdown.
//!
//! From top to bottom; a module imports only modules below it:
//!
//! ```text
//! engine                            the public type and its lifecycle
//! embeddings                        passed to the HTTP service of a model
//! health                            state of each provider, metrics, idle memory
//! runs                              a run from start to finish: driver, attempts, log, queries, cancellation
//! attempt                           one attempt on one provider: everything it needs and owns
//! shared                            state that every part above uses
//! admission  session  warm  worktree  store_writer     parts with state of their own
//! router  sandbox                   decisions without I/O; confinement
//! settings  start_error             plain data
//! ```

mod admission;
mod attempt;
mod embeddings;
mod engine;
mod health;
pub mod router;
mod runs;
mod sandbox;
mod schema;
mod session;
mod settings;
mod shared;
mod start_error;
mod store_writer;
mod tools;
mod warm;
mod worktree;

pub use admission::{Allowance, Caps, KeyCaps};
pub use attempt::environment::{of_executable, secret_values};
pub use attempt::plan::{Plan, ignored as ignored_options};
pub use attempt::program::{Located, locate};
pub use embeddings::{EmbeddingError, EmbeddingRequest};
pub use engine::Engine;
pub use health::metrics::Metrics;
pub use health::report::{Depth, Examined, HealthReport, Probed, Status};
pub use router::explain::{Explanation, Rung};
pub use router::models::{ModelAbilities, Models};
pub use runs::gateway_process::{name_of_process, process_lives};
pub use runs::{
    CancelOutcome, DeleteOutcome, DiffError, Follow, IdempotencyError, IdempotentTurn, JoinedRun, LoggedEvents, Run,
    RunQueryError, current_run, current_runs,
};
pub use sandbox::{Bounds, Free};
pub use session::folder::same_folder;
pub use session::forget_sessions;
pub use settings::EngineSettings;
pub use start_error::{KnownCli, StartError};
pub use store_writer::tally::Turns;
pub use tools::{ToolEndpoint, ToolPort, ToolPorts};
pub use trunkline_store::{
    CurrentAttempt, Durability, LogState, RunFailure, RunFilter, RunLogEntry, RunRow, RunState, Time,
};
pub use warm::{WarmBudget, WarmStats};
pub use worktree::git::DEFAULT_GIT_TIMEOUT;
