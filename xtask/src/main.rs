//! `cargo xtask`: tests, benchmarks and builds of this repository that need more than plain cargo.
//!
//! Each command is a module with its own arguments, help text and `run`.

mod attack;
mod bench;
mod clients;
mod conformance;
mod desktop;
mod fuzz;
mod given_binary;
mod memory;
mod npm;
mod pip;
mod test;
mod torture;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

const MORE_HELP: &str = "Run `cargo xtask <COMMAND> --help` for what a command does, its options and examples.";

/// Tests, benchmarks and builds of the Trunkline repository
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", after_help = MORE_HELP)]
struct XtaskArgs {
    #[command(subcommand)]
    command: Option<XtaskCommand>,
}

// The help text of each command is the doc comment of its arguments.
#[derive(Debug, Subcommand)]
enum XtaskCommand {
    Test(test::TestArgs),
    Conformance(conformance::ConformanceArgs),
    Clients(clients::ClientsArgs),
    Attack(attack::AttackArgs),
    Torture(torture::TortureArgs),
    Fuzz(fuzz::FuzzArgs),
    Bench(bench::BenchArgs),
    Memory(memory::MemoryArgs),
    Desktop(desktop::DesktopArgs),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // `Debug`, which `Result` as the return type would print, adds a backtrace to the message.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let Some(command) = XtaskArgs::parse().command else {
        return Ok(XtaskArgs::command().print_help()?);
    };
    match command {
        XtaskCommand::Test(test) => test.run(),
        XtaskCommand::Conformance(conformance) => conformance.run(),
        XtaskCommand::Clients(clients) => clients.run(),
        XtaskCommand::Attack(attack) => attack.run(),
        XtaskCommand::Torture(torture) => torture.run(),
        XtaskCommand::Fuzz(fuzz) => fuzz.run(),
        XtaskCommand::Bench(bench) => bench.run(),
        XtaskCommand::Memory(memory) => memory.run(),
        XtaskCommand::Desktop(desktop) => desktop.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_summary_and_a_longer_help() {
        let xtask = XtaskArgs::command();
        xtask.clone().debug_assert();
        for command in xtask.get_subcommands() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty() && !about.contains('\n'), "{}: {about:?}", command.get_name());
            assert!(long.len() > about.len(), "{} has no longer help", command.get_name());
            assert!(command.get_after_long_help().is_some(), "{} has no examples", command.get_name());
        }
    }

    #[test]
    fn arguments_are_optional_so_that_the_bare_command_prints_help() {
        assert!(XtaskArgs::try_parse_from(["xtask"]).is_ok_and(|args| args.command.is_none()));
    }
}
