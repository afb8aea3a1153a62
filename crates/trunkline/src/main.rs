//! The `trunkline` binary: parses the command line, reads the configuration, and connects the crates.
//!
//! | module | content |
//! |---|---|
//! | `cli`, `engine_args`, `exit` | arguments, exit statuses |
//! | `commands` | one file per subcommand |
//! | `config` | the environment, `models.json`, `router.yaml`, `providers.toml` |
//! | `setup` | a loaded configuration and an engine for it |
//! | `repl` | the conversation of `trunkline agent` |
//! | `output`, `wording`, `shell` | lines on stdout and stderr, and their texts |
//! | `service`, `signals`, `state_folder` | what the system expects of a service |
// `eprintln!` panics if stderr is closed; `output::tell` does not.
#![deny(clippy::print_stderr)]

mod cli;
mod commands;
mod config;
mod engine_args;
mod exit;
mod output;
mod repl;
mod service;
mod setup;
mod shell;
mod signals;
mod state_folder;
mod wording;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use cli::{CliArgs, CliCommand};
use config::ConfigError;
use exit::CliExit;
use output::{DefaultLog, start_log, tell};

fn main() -> ExitCode {
    // Before anything else: a keeper process is started for each run and must start fast.
    if std::env::args_os().nth(1).is_some_and(|arg| arg == "__keeper") {
        return trunkline_process::keeper_main();
    }
    trunkline_memory::keep_little();
    // Our environment holds API keys, and the agents run as the same user.
    let closed = trunkline_process::set_undumpable();
    let cli = CliArgs::parse();
    let shows_progress = matches!(cli.command, CliCommand::Run(_) | CliCommand::Agent(_));
    start_log(cli.verbose, if shows_progress { DefaultLog::Errors } else { DefaultLog::Info });
    if !closed {
        tracing::warn!("this system lets processes of one user inspect each other: an agent can read our environment");
    }
    match cli.command.run() {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell(format_args!("trunkline: {error:#}"));
            let exit = if error.is::<ConfigError>() { CliExit::Configuration } else { CliExit::General };
            exit.into()
        }
    }
}

/// Whether the reader of our output closed the pipe, as `head` does. That is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
