//! The least that a gateway can be, as a process: what any of them costs on this machine.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use tokio::process::{Child, Command};

use super::gateway::listening;

pub(crate) struct Least {
    process: Child,
    pub(super) address: SocketAddr,
}

impl Least {
    pub(crate) async fn start(program: &Path, agent: &Path) -> Result<Self> {
        let mut process = command(program, agent).spawn().context("the least gateway cannot be started")?;
        let address = listening(&mut process).await?;
        Ok(Self { process, address })
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}

#[expect(clippy::disallowed_methods, reason = "it is what is measured")]
fn command(program: &Path, agent: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(agent).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    command
}
