//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands;
use crate::config::Surroundings;

/// Every coding-agent CLI on one line
///
/// Runs the agent CLIs you already have (Claude Code, Codex, Gemini CLI, Qwen Code, OpenCode, ax-glm, ax-grok, or your
/// own) inside your repositories, and offers them as models behind an OpenAI-compatible API.
#[derive(Debug, Parser)]
#[command(version, after_help = "Exit status: 0 ok, 1 general, 2 arguments, 3 configuration, 4 provider.")]
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
    Models(commands::models::List),
    Check(commands::check::Check),
    Doctor(commands::doctor::Doctor),
    Sessions(commands::sessions::Sessions),
    History(commands::history::History),
    Decode(commands::decode::Decode),
    Provider(commands::provider::Provider),
    MockLlm(commands::mock_llm::MockLlm),
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
}

impl Places {
    pub(crate) fn state_folder(&self, around: &Surroundings) -> PathBuf {
        self.state.as_ref().map_or_else(|| around.state_home(), |state| around.folder.join(state))
    }
}
