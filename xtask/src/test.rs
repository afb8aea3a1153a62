//! `cargo xtask test`: the whole of the tests. Grows with what they need: real CLIs, a browser.

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
            for program in ["git", "sh", "python3", "jq"] {
                need(program)?;
            }
            let mut cargo = command(env!("CARGO"));
            tallies.push(watch(cargo.args(["test", "--workspace", "--locked"]), Tally::add)?);
        }
        tallies.push(page::run()?);
        let sum = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum::<u64>();
        let (passed, failed) = (sum(|tally| tally.passed - tally.left_out), sum(|tally| tally.failed));
        let skipped = sum(|tally| tally.ignored + tally.left_out);
        println!("\ntests: {passed} passed, {failed} failed, {skipped} skipped");
        if failed > 0 || !tallies.iter().all(|tally| tally.success && tally.passed > 0) {
            bail!("the tests failed");
        }
        Ok(())
    }
}

/// What a test runner counted, or several of them together.
#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    left_out: u64,
    success: bool,
}

impl Tally {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`, or `left out: needs root: …`, which a test
    /// prints that passes because it cannot be run here.
    fn add(&mut self, line: &str) {
        if line.starts_with("left out: ") {
            self.left_out += 1;
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

/// Programs the hermetic tests start. On a fresh Debian machine they are installed.
fn need(program: &str) -> Result<()> {
    need_package(program, &[program])
}

pub(crate) fn need_package(program: &str, packages: &[&str]) -> Result<()> {
    if command(program).arg(if program == "sh" { "-c" } else { "--version" }).arg(":").output().is_ok() {
        return Ok(());
    }
    eprintln!("{program} is missing: installing it");
    if install(packages) {
        return Ok(());
    }
    bail!("the tests need {program}; install it and try again (on Debian: apt-get install {})", packages.join(" "))
}

/// Installs packages of Debian, where we may; whether they are there.
pub(crate) fn install(packages: &[&str]) -> bool {
    let apt = |args: &[&str]| command("apt-get").args(args).status().is_ok_and(|status| status.success());
    let install = || apt(&[&["install", "--yes", "--no-install-recommends"], packages].concat());
    // A fresh machine may not know yet what there is.
    install() || (apt(&["update"]) && install())
}

/// Builds the programs of one package, always in the same way: what they share with others is compiled once.
pub(crate) fn build(package: &str) -> Result<()> {
    if !command(env!("CARGO")).args(["build", "--package", package, "--locked"]).status()?.success() {
        bail!("{package} cannot be built");
    }
    Ok(())
}

/// Runs the tests, shows what they print, and counts.
fn watch(runner: &mut Command, add: fn(&mut Tally, &str)) -> Result<Tally> {
    let mut child = runner.stdout(Stdio::piped()).spawn().context("cannot start the tests")?;
    let mut tally = Tally::default();
    for line in BufReader::new(child.stdout.take().expect("it is piped")).lines() {
        let line = line?;
        add(&mut tally, &line);
        println!("{line}");
    }
    tally.success = child.wait()?.success();
    Ok(tally)
}

#[expect(clippy::disallowed_methods, reason = "a chore is a command that starts commands")]
pub(crate) fn command(program: &str) -> Command {
    Command::new(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_added_up() {
        let mut tally = Tally::default();
        tally.add("test result: ok. 12 passed; 0 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.73s");
        tally.add("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.add("test passed ... ok");
        tally.add("left out: needs root: a full disk");
        assert_eq!((tally.passed, tally.failed, tally.ignored, tally.left_out), (13, 2, 4, 1));
    }
}
