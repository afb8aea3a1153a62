//! The command line.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use trunkline_core::model::Sandbox;

use crate::commands;
use crate::config::{Surroundings, normal, parse_span};

/// Version and, if the build knew it, commit: `0.1.0 (1e115ca 2026-11-17)`. Set by the build script.
const VERSION: &str = env!("TRUNKLINE_VERSION");

/// Every coding-agent CLI on one line
///
/// Runs the agent CLIs you already have (Claude Code, Codex, Gemini CLI, Qwen Code, OpenCode, ax-glm, ax-grok, or your
/// own) inside your repositories, and offers them as models behind an OpenAI-compatible API.
#[derive(Debug, Parser)]
#[command(
    version = VERSION,
    after_help = "Exit status: 0 ok, 1 general, 2 arguments, 3 configuration, 4 provider; 130 after Ctrl+C, 143 after SIGTERM."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Say more; twice for everything
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(commands::serve::Serve),
    Agent(commands::agent::Agent),
    Run(commands::run::Run),
    Runs(commands::runs::Runs),
    Models(commands::models::List),
    Check(commands::check::Check),
    Doctor(commands::doctor::Doctor),
    Sessions(commands::sessions::Sessions),
    History(commands::history::History),
    Decode(commands::decode::Decode),
    Provider(commands::provider::Provider),
    MockLlm(commands::mock_llm::MockLlm),
    Desktop(commands::desktop::Desktop),
    #[cfg(feature = "discord")]
    Discord(commands::discord::Discord),
}

/// Where things are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Places {
    /// Folder with models.json and providers.toml [default: ., .trunkline, $XDG_CONFIG_HOME/trunkline]
    #[arg(long, value_name = "DIR", env = "TRUNKLINE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Folder for private state [default: $XDG_STATE_HOME/trunkline]
    #[arg(long, value_name = "DIR", env = "TRUNKLINE_STATE")]
    pub(crate) state: Option<PathBuf>,
    /// Folder for git worktrees of runs
    #[arg(long, value_name = "DIR", env = "TRUNKLINE_WORKTREES", default_value = "/tmp/agenticllm")]
    pub(crate) worktrees: PathBuf,
    /// Whether the kernel confines runs with the permissions read and edit, for models that do not say
    #[arg(long, value_name = "WHEN", env = "TRUNKLINE_SANDBOX", default_value = "on")]
    pub(crate) sandbox: Confining,
    /// Time limit of each git process, and of saving a run's work; what is not saved by then stays in its worktree
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_GIT_TIMEOUT", default_value = "60s", value_parser = git_timeout)]
    pub(crate) git_timeout: Duration,
}

/// Limits that a person can have meant: a shorter one stops every save, a longer one none that hangs.
const GIT_TIMEOUTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

fn git_timeout(text: &str) -> Result<Duration, String> {
    let span = parse_span(text)?;
    if GIT_TIMEOUTS.contains(&span) { Ok(span) } else { Err("a time from 1s to 1h is needed".to_owned()) }
}

/// [`Sandbox`], as an argument.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Confining {
    /// Where the kernel can
    On,
    /// Only the CLIs' own flags hold
    Off,
    /// Where the kernel cannot, nothing is run
    Required,
}

impl From<Confining> for Sandbox {
    fn from(confining: Confining) -> Self {
        match confining {
            Confining::On => Self::On,
            Confining::Off => Self::Off,
            Confining::Required => Self::Required,
        }
    }
}

impl Places {
    pub(crate) fn state_folder(&self, around: &Surroundings) -> PathBuf {
        self.state.as_ref().map_or_else(|| around.state_home(), |state| normal(&around.folder.join(state)))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn version_begins_with_the_package_version_and_may_name_a_commit() {
        let shown = Cli::command().render_version();
        let rest = shown.strip_prefix(concat!("trunkline ", env!("CARGO_PKG_VERSION"))).unwrap().trim_end();
        assert!(rest.is_empty() || rest.starts_with(" (") && rest.ends_with(')'), "{shown}");
    }

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
