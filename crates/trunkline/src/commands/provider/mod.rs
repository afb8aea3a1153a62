//! `trunkline provider …`: for people who write providers of their own. See docs/PROVIDERS.md.

mod cases;
mod check;
mod judge;
mod observe;
mod report;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Work on a provider of your own: an executable that speaks the provider protocol
#[derive(Debug, Args)]
pub(crate) struct Provider {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Check),
}

impl Provider {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Check(check) => check.run(),
        }
    }
}
