//! `cargo xtask test`: the whole of the tests. Grows with what they need: real CLIs, a browser.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

pub(crate) fn run() -> Result<()> {
    need("git")?;
    need("sh")?;
    need("python3")?;
    need("jq")?;
    let tally = cargo_test(&["test", "--workspace", "--locked"])?;
    println!("\ntests: {} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.ignored);
    if tally.failed > 0 || tally.passed == 0 || !tally.success {
        bail!("the tests failed");
    }
    Ok(())
}

/// What the test runners of all crates counted together.
#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    success: bool,
}

impl Tally {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add(&mut self, line: &str) {
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
    if command(program).arg(if program == "sh" { "-c" } else { "--version" }).arg(":").output().is_ok() {
        return Ok(());
    }
    eprintln!("{program} is missing: installing it");
    let installed = command("apt-get").args(["install", "--yes", "--no-install-recommends", program]).status();
    if installed.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    bail!("the tests need {program}; install it and try again")
}

/// Runs the tests, shows what they print, and counts.
fn cargo_test(args: &[&str]) -> Result<Tally> {
    let mut child = command(env!("CARGO")).args(args).stdout(Stdio::piped()).spawn()?;
    let mut tally = Tally::default();
    for line in BufReader::new(child.stdout.take().expect("it is piped")).lines() {
        let line = line?;
        tally.add(&line);
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
        assert_eq!((tally.passed, tally.failed, tally.ignored), (13, 2, 4));
    }
}
