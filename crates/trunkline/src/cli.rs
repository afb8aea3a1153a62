//! The command line: global arguments and the list of subcommands.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::commands::agent::AgentArgs;
use crate::commands::check::CheckArgs;
use crate::commands::decode::DecodeArgs;
use crate::commands::desktop::DesktopWindowArgs;
#[cfg(feature = "discord")]
use crate::commands::discord::DiscordArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::history::HistoryArgs;
use crate::commands::mock_llm::MockLlmArgs;
use crate::commands::models::ModelsArgs;
use crate::commands::provider::ProviderArgs;
use crate::commands::run::RunArgs;
use crate::commands::runs::RunsArgs;
use crate::commands::serve::ServeArgs;
use crate::commands::sessions::SessionsArgs;

/// Version and, if the build knew it, commit: `0.1.0 (1e115ca 2026-11-17)`. Set by the build script.
const VERSION: &str = env!("TRUNKLINE_VERSION");

/// Every coding-agent CLI on one line
///
/// Runs the agent CLIs you already have (Claude Code, Codex, Gemini CLI, Qwen Code, OpenCode, ax-glm, ax-grok, or your
/// own) inside your repositories, and offers them as models behind an OpenAI-compatible API.
#[derive(Debug, Parser)]
#[command(
    name = "trunkline",
    version = VERSION,
    after_help = "\
First steps:
  trunkline doctor                            which agent CLIs are installed
  trunkline run -m codex \"explain the build\"  one task in this folder
  trunkline serve                             the gateway, on http://127.0.0.1:8765

Exit status: 0 ok, 1 general, 2 arguments, 3 configuration, 4 provider; 130 after Ctrl+C, 143 after SIGTERM."
)]
pub(crate) struct CliArgs {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
    /// Log more; twice for everything
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    Serve(ServeArgs),
    Agent(AgentArgs),
    Run(RunArgs),
    Runs(RunsArgs),
    Models(ModelsArgs),
    Check(CheckArgs),
    Doctor(DoctorArgs),
    Sessions(SessionsArgs),
    History(HistoryArgs),
    Decode(DecodeArgs),
    Provider(ProviderArgs),
    MockLlm(MockLlmArgs),
    Desktop(DesktopWindowArgs),
    #[cfg(feature = "discord")]
    Discord(DiscordArgs),
}

impl CliCommand {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            Self::Serve(args) => args.run(),
            Self::Agent(args) => args.run(),
            Self::Run(args) => args.run(),
            Self::Runs(args) => args.run(),
            Self::Models(args) => args.run(),
            Self::Check(args) => args.run(),
            Self::Doctor(args) => args.run(),
            Self::Sessions(args) => args.run(),
            Self::History(args) => args.run(),
            Self::Decode(args) => args.run(),
            Self::Provider(args) => args.run(),
            Self::MockLlm(args) => args.run(),
            Self::Desktop(args) => args.run(),
            #[cfg(feature = "discord")]
            Self::Discord(args) => args.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn version_begins_with_the_package_version_and_may_name_a_commit() {
        let shown = CliArgs::command().render_version();
        let rest = shown.strip_prefix(concat!("trunkline ", env!("CARGO_PKG_VERSION"))).unwrap().trim_end();
        assert!(rest.is_empty() || rest.starts_with(" (") && rest.ends_with(')'), "{shown}");
    }

    #[test]
    fn arguments_are_consistent() {
        CliArgs::command().debug_assert();
    }
}
