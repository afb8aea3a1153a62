//! Arguments of every command that reads the configuration or the state: folders, the sandbox, limits of git.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use trunkline_core::model::Sandbox;
use trunkline_engine::Durability;

use crate::config::{Environment, normal, parse_span};

/// Folders and limits of the engine.
#[derive(Debug, Clone, Args)]
pub(crate) struct EngineArgs {
    /// Folder with models.json, router.yaml and providers.toml [default: ., .trunkline, $XDG_CONFIG_HOME/trunkline]
    #[arg(long, value_name = "DIR", env = "TRUNKLINE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Folder for private state: sessions, runs, the database [default: $XDG_STATE_HOME/trunkline]
    #[arg(long, value_name = "DIR", env = "TRUNKLINE_STATE")]
    pub(crate) state: Option<PathBuf>,
    /// Folder for git worktrees of runs
    #[arg(long, value_name = "DIR", env = "TRUNKLINE_WORKTREES", default_value = "/tmp/agenticllm")]
    pub(crate) worktrees: PathBuf,
    /// Whether the kernel confines runs with the permissions read and edit, unless the model sets `sandbox`
    #[arg(long, value_name = "WHEN", env = "TRUNKLINE_SANDBOX", default_value = "on")]
    pub(crate) sandbox: SandboxArg,
    /// Failures that the record of a run survives: the end of the gateway's process, or also a power failure
    #[arg(long, value_name = "WHAT", env = "TRUNKLINE_DURABILITY", default_value = "process")]
    pub(crate) durability: DurabilityArg,
    /// Time limit of each git process, and of saving a run's work; work that is not saved by then stays in its worktree
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_GIT_TIMEOUT", default_value = "60s", value_parser = git_timeout)]
    pub(crate) git_timeout: Duration,
}

/// Accepted limits of git: a shorter one would stop every save, a longer one would not stop a save that hangs.
const GIT_TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

fn git_timeout(text: &str) -> Result<Duration, String> {
    let span = parse_span(text)?;
    if GIT_TIMEOUT_RANGE.contains(&span) { Ok(span) } else { Err("a time from 1s to 1h is needed".to_owned()) }
}

/// [`Sandbox`] as an argument.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SandboxArg {
    /// Confine runs if the kernel supports it
    On,
    /// Rely on the CLIs' own permission flags
    Off,
    /// Refuse to run if the kernel cannot confine
    Required,
}

impl From<SandboxArg> for Sandbox {
    fn from(sandbox: SandboxArg) -> Self {
        match sandbox {
            SandboxArg::On => Self::On,
            SandboxArg::Off => Self::Off,
            SandboxArg::Required => Self::Required,
        }
    }
}

/// [`Durability`] as an argument.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// Hand each record to the kernel before it is promised
    Process,
    /// Also wait until the disk has it; runs that wait at the same time share one fdatasync
    Fsync,
}

impl From<DurabilityArg> for Durability {
    fn from(durability: DurabilityArg) -> Self {
        match durability {
            DurabilityArg::Process => Self::Process,
            DurabilityArg::Fsync => Self::Fsync,
        }
    }
}

impl EngineArgs {
    pub(crate) fn state_folder(&self, environment: &Environment) -> PathBuf {
        self.state.as_ref().map_or_else(|| environment.state_home(), |state| normal(&environment.folder.join(state)))
    }
}
