//! `trunkline provider`: tools for authors of provider executables. See docs/PROVIDERS.md.

mod cases;
mod check;
mod judge;
mod observe;
mod report;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Develop your own provider: an executable that implements the provider protocol
#[derive(Debug, Args)]
pub(crate) struct ProviderArgs {
    #[command(subcommand)]
    command: ProviderCommand,
}

#[derive(Debug, Subcommand)]
enum ProviderCommand {
    Check(check::ProviderCheckArgs),
}

impl ProviderArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.command {
            ProviderCommand::Check(check) => check.run(),
        }
    }
}
