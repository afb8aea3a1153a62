//! `cargo xtask test`: the whole of the tests. Grows with what they need: real CLIs, a browser.

use std::process::Command;

use anyhow::{Result, bail};

pub(crate) fn run() -> Result<()> {
    need("git")?;
    need("sh")?;
    cargo(&["test", "--workspace", "--locked"])
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

fn cargo(args: &[&str]) -> Result<()> {
    let status = command(env!("CARGO")).args(args).status()?;
    if !status.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a chore is a command that starts commands")]
pub(crate) fn command(program: &str) -> Command {
    Command::new(program)
}
