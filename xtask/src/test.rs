//! `cargo xtask test`: the tests of the workspace and of the chat page, with installation of the programs they need.

mod page;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  cargo xtask test         All tests
  cargo xtask test --page  The tests of the chat page";

/// Run all tests: the workspace, and the chat page in a browser
///
/// Runs `cargo test --workspace`, then tests/page in headless Chromium. Missing programs (git, python3, jq, Node, Chromium)
/// are installed with apt-get where this user may install them. Tests that need root are skipped and counted.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TestArgs {
    /// Run only the tests of the chat page
    #[arg(long)]
    page: bool,
}

impl TestArgs {
    pub(crate) fn run(self) -> Result<()> {
        let mut tallies = Vec::new();
        if !self.page {
            for program in ["git", "sh", "python3", "jq", "curl"] {
                need(program)?;
            }
            let mut cargo = command(env!("CARGO"));
            tallies.push(watch(cargo.args(["test", "--workspace", "--locked"]), TestTally::add)?);
        }
        tallies.push(page::run()?);
        let sum = |count: fn(&TestTally) -> u64| tallies.iter().map(count).sum::<u64>();
        let (passed, failed) = (sum(|tally| tally.passed - tally.skipped_inside), sum(|tally| tally.failed));
        let skipped = sum(|tally| tally.ignored + tally.skipped_inside);
        println!("\ntests: {passed} passed, {failed} failed, {skipped} skipped");
        if failed > 0 || !tallies.iter().all(|tally| tally.success && tally.passed > 0) {
            bail!("the tests failed");
        }
        Ok(())
    }
}

/// Counts of a test runner, summed over its test binaries.
#[derive(Debug, Default)]
struct TestTally {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Tests that passed because they cannot run here, such as tests that need root.
    skipped_inside: u64,
    success: bool,
}

impl TestTally {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`, or `left out: needs root: …`, which tests
    /// print when they cannot run here and pass without checking anything.
    fn add(&mut self, line: &str) {
        if line.starts_with("left out: ") {
            self.skipped_inside += 1;
        }
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        let count = |word: &str| {
            let before = counts.split_once(word)?.0.trim_end();
            before.rsplit(' ').next()?.parse::<u64>().ok()
        };
        self.passed += count("passed").unwrap_or(0);
        self.failed += count("failed").unwrap_or(0);
        self.ignored += count("ignored").unwrap_or(0);
    }
}

/// Makes sure that a program is installed whose Debian package has the same name.
fn need(program: &str) -> Result<()> {
    need_package(program, &[program])
}

/// Makes sure that a program is installed; installs the Debian packages if it is missing.
pub(crate) fn need_package(program: &str, packages: &[&str]) -> Result<()> {
    if command(program).arg(if program == "sh" { "-c" } else { "--version" }).arg(":").output().is_ok() {
        return Ok(());
    }
    eprintln!("{program} is missing; installing it");
    if install(packages) {
        return Ok(());
    }
    bail!("the tests need {program}; install it and try again (on Debian: apt-get install {})", packages.join(" "))
}

/// Installs Debian packages with apt-get; returns whether that succeeded.
pub(crate) fn install(packages: &[&str]) -> bool {
    let apt = |args: &[&str]| command("apt-get").args(args).status().is_ok_and(|status| status.success());
    let install = || apt(&[&["install", "--yes", "--no-install-recommends"], packages].concat());
    // A fresh machine has no package lists yet.
    install() || (apt(&["update"]) && install())
}

/// Builds the binaries of one package. All commands use the same flags, so that shared dependencies are compiled once.
pub(crate) fn build(package: &str) -> Result<()> {
    if !command(env!("CARGO")).args(["build", "--package", package, "--locked"]).status()?.success() {
        bail!("{package} cannot be built");
    }
    Ok(())
}

/// Runs a test runner, prints its output and counts the results.
fn watch(runner: &mut Command, add: fn(&mut TestTally, &str)) -> Result<TestTally> {
    let mut child = runner.stdout(Stdio::piped()).spawn().context("cannot start the tests")?;
    let mut tally = TestTally::default();
    for line in BufReader::new(child.stdout.take().expect("stdout is piped")).lines() {
        let line = line?;
        add(&mut tally, &line);
        println!("{line}");
    }
    tally.success = child.wait()?.success();
    Ok(tally)
}

#[expect(clippy::disallowed_methods, reason = "xtask is a tool that starts other programs")]
pub(crate) fn command(program: &str) -> Command {
    Command::new(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_test_binaries_are_summed() {
        let mut tally = TestTally::default();
        tally.add("test result: ok. 12 passed; 0 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.73s");
        tally.add("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.add("test passed ... ok");
        tally.add("left out: needs root: a full disk");
        assert_eq!((tally.passed, tally.failed, tally.ignored, tally.skipped_inside), (13, 2, 4, 1));
    }
}
