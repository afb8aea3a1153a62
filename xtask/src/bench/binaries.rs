//! Builds the gateway and the programs it is measured with.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::test::command;

/// Paths of the built programs.
pub(crate) struct BenchBinaries {
    /// The fake agent.
    pub(crate) agent: PathBuf,
    pub(crate) gateway: PathBuf,
    pub(crate) minimal_gateway: PathBuf,
}

/// Builds the gateway with the profile of the shipped binary.
pub(crate) fn build_shipped() -> Result<BenchBinaries> {
    build("dist")
}

/// Builds the gateway and the programs it is measured with.
pub(super) fn build(profile: &str) -> Result<BenchBinaries> {
    build_with(profile, &["-p", "trunkline", "--bin", "trunkline"])
}

/// Builds the programs that a gateway is measured with, for a gateway that exists.
pub(super) fn build_around(gateway: PathBuf, profile: &str) -> Result<BenchBinaries> {
    Ok(BenchBinaries { gateway, ..build_with(profile, &[])? })
}

/// Builds the programs that a gateway is measured with, and others. Not xtask itself, which would take minutes.
fn build_with(profile: &str, others: &[&str]) -> Result<BenchBinaries> {
    let ours = ["-p", "xtask", "--bin", "fake-agent", "--bin", "minimal-gateway"];
    let mut cargo = command(env!("CARGO"));
    if !cargo.args(["build", "--locked", "--profile", profile]).args(others).args(ours).status()?.success() {
        bail!("the programs to measure cannot be built");
    }
    let folder = target_folder()?.join(if profile == "dev" { "debug" } else { profile });
    let [agent, gateway, minimal_gateway] =
        ["fake-agent", "trunkline", "minimal-gateway"].map(|name| folder.join(name));
    Ok(BenchBinaries { agent, gateway, minimal_gateway })
}

/// The target directory that this program was built into.
pub(super) fn target_folder() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    Ok(exe.parent().and_then(Path::parent).context("no target folder")?.to_owned())
}
