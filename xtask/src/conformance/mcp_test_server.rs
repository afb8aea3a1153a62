//! MCP server that the gateway gives to the CLIs, over HTTP on loopback.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::test::command;

/// Secret that the server asks for.
pub(crate) const TOKEN: &str = "harbour-token-5150";

/// Stand for the address of the server and the path of its program in the settings of a case's model.
pub(crate) const ADDRESS: &str = "<harbour>";
pub(crate) const PROGRAM: &str = "<harbour-program>";

/// The running server. Dropping this value kills it.
pub(crate) struct McpTestServer {
    process: Child,
    pub(crate) address: String,
    program: String,
    calls: PathBuf,
}

impl McpTestServer {
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/harbour_server.py").to_owned();
        let calls = folder.join("harbour-calls.txt");
        fs::write(&calls, "")?;
        let mut process = command("python3").arg(&program).arg(&calls).stdout(Stdio::piped()).spawn()?;
        let mut port = String::new();
        BufReader::new(process.stdout.take().context("stdout is piped")?).read_line(&mut port)?;
        Ok(Self { process, address: format!("http://127.0.0.1:{}", port.trim()), program, calls })
    }

    /// The settings of a model with the address and the path filled in.
    pub(crate) fn fill(&self, settings: &Value) -> Result<Value> {
        let text = settings.to_string().replace(ADDRESS, &self.address).replace(PROGRAM, &self.program);
        Ok(serde_json::from_str(&text)?)
    }

    /// Tools that were called with the name of a case in the header `X-Case`.
    pub(crate) fn calls(&self, case: &str) -> Result<Vec<String>> {
        let calls = fs::read_to_string(&self.calls)?;
        let of_case = calls.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name == case);
        Ok(of_case.map(|(_, tool)| tool.to_owned()).collect())
    }
}

impl Drop for McpTestServer {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
