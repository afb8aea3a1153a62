//! The binary: reads the command line and the configuration, and connects the crates.
// `eprintln!` panics where nobody reads stderr; `setup::tell` does not.
#![deny(clippy::print_stderr)]

mod cli;
mod commands;
mod config;
mod private;
mod repl;
mod service;
mod setup;
mod wording;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use config::ConfigError;
use setup::{StopSignal, tell};

fn main() -> ExitCode {
    // Before anything else: a keeper is started for runs, and must cost nothing.
    if std::env::args_os().nth(1).is_some_and(|arg| arg == "__keeper") {
        return trunkline_process::keeper_main();
    }
    trunkline_memory::keep_little();
    // There are keys in our environment, and whatever we start runs as we do.
    let closed = trunkline_process::close_to_others();
    let cli = Cli::parse();
    setup::log(cli.verbose, matches!(cli.command, Command::Run(_) | Command::Agent(_)));
    if !closed {
        tracing::warn!(
            "this system lets the processes of a user look into each other: an agent can read our environment"
        );
    }
    match run(cli) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell(format_args!("trunkline: {error:#}"));
            ExitCode::from(if error.is::<ConfigError>() { Exit::Configuration } else { Exit::General } as u8)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Agent(agent) => agent.run(),
        Command::Run(run) => run.run(),
        Command::Runs(runs) => runs.run(),
        Command::Models(models) => models.run(),
        Command::Check(check) => check.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Sessions(sessions) => sessions.run(),
        Command::History(history) => history.run(),
        Command::Decode(decode) => decode.run(),
        Command::Provider(provider) => provider.run(),
        Command::MockLlm(mock) => mock.run(),
        Command::Desktop(desktop) => desktop.run(),
        #[cfg(feature = "discord")]
        Command::Discord(discord) => discord.run(),
    }
}

/// Whoever read our output has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// What an exit status means; clap has the same for arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Exit {
    General = 1,
    Arguments = 2,
    Configuration = 3,
    Provider = 4,
    /// A signal ended it: 128 and the signal's number, as a shell has it.
    HungUp = 129,
    Interrupted = 130,
    Terminated = 143,
}

impl From<StopSignal> for Exit {
    fn from(signal: StopSignal) -> Self {
        match signal {
            StopSignal::Hangup => Self::HungUp,
            StopSignal::Interrupt => Self::Interrupted,
            StopSignal::Terminate => Self::Terminated,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
