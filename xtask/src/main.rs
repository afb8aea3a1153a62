//! The project's own chores.

mod attack;
mod bench;
mod conformance;
mod desktop;
mod fuzz;
mod memory;
mod npm;
mod test;
mod torture;

use std::process::ExitCode;

use clap::Parser;

/// Chores of the Trunkline project
#[derive(Debug, Parser)]
enum Chore {
    /// Let hostile agents loose on a gateway, and show what holds
    Attack(attack::Attack),
    /// Prove everything that can be proven on this machine, installing what that needs
    Test(test::Test),
    /// Measure what the gateway adds to the CLIs it runs, beside the bare CLI in the same run
    Bench(bench::Bench),
    /// Run the real CLIs through the gateway against the mock LLM, and show what holds
    Conformance(conformance::Conformance),
    /// Build the desktop window, a workspace of its own; pack it, or try it on a screen that nobody sees
    Desktop(desktop::Desktop),
    /// Try what strangers send, made up: outputs of CLIs, streams, configuration, requests
    Fuzz(fuzz::Fuzz),
    /// Let a gateway run programs that print much, and see whether it gives back what that took; needs 30 GB of disk
    Memory(memory::Memory),
    /// Load a gateway, let everything go wrong that can, and look for what is left or lost
    Torture(torture::Torture),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // Without a backtrace: what went wrong is in the words.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    match Chore::parse() {
        Chore::Attack(attack) => attack.run(),
        Chore::Test(test) => test.run(),
        Chore::Bench(bench) => bench.run(),
        Chore::Conformance(conformance) => conformance.run(),
        Chore::Desktop(desktop) => desktop.run(),
        Chore::Fuzz(fuzz) => fuzz.run(),
        Chore::Memory(memory) => memory.run(),
        Chore::Torture(torture) => torture.run(),
    }
}
