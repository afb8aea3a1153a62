//! Start of a gateway in the folder of a world: `models.json`, `state`, `worktrees`, `home` and `gateway.log`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Starts a gateway and returns it with its address, once it listens. `program` is the gateway, or a program that starts
/// it.
pub(super) fn start(mut program: Command, folder: &Path, options: &[&str]) -> Result<(Child, SocketAddr)> {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("gateway.log"))?;
    let mut gateway = program
        .args(["serve", "--port", "0", "--max-runs", "8", "--grace", "300ms", "--drain", "2s"])
        .args(options)
        .arg("--config")
        .arg(folder)
        .arg("--state")
        .arg(folder.join("state"))
        .arg("--worktrees")
        .arg(folder.join("worktrees"))
        .env_clear()
        .env("HOME", folder.join("home"))
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("cannot start the gateway")?;
    let mut line = String::new();
    BufReader::new(gateway.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
    let Some(address) = line.trim().strip_prefix("listening on http://") else {
        let status = gateway.wait()?;
        bail!("the gateway did not start: {line:?}, {status}");
    };
    Ok((gateway, address.parse()?))
}
