//! Process of the minimal gateway (`src/minimal_gateway.rs`): the lower bound for the cost of any gateway on this machine.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use tokio::process::{Child, Command};

use super::gateway::read_address;

pub(crate) struct MinimalGateway {
    process: Child,
    pub(super) address: SocketAddr,
}

impl MinimalGateway {
    pub(crate) async fn start(program: &Path, agent: &Path) -> Result<Self> {
        let mut process = command(program, agent).spawn().context("cannot start the minimal gateway")?;
        let address = read_address(&mut process).await?;
        Ok(Self { process, address })
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}

#[expect(clippy::disallowed_methods, reason = "the benchmark starts the gateway it measures")]
fn command(program: &Path, agent: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(agent).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    command
}
