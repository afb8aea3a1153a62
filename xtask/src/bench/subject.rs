//! CLIs to measure: the fake agent, and the real CLIs against the mock LLM.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use trunkline_core::provider::{self, CommandLine, Form, Provider, Told, Values};

use crate::conformance::clis::CliUnderTest;
use crate::conformance::environment::CliEnvironment;
use crate::conformance::install::InstalledClis;

/// Prompt for every CLI: a trigger in `conformance/scenarios.json`, answered at once and without a tool.
pub(crate) const PROMPT: &str = "How tall is the lighthouse?";

pub(crate) struct BenchSubject {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// Recipe of the CLI.
    pub(crate) provider: Provider,
    /// Files in the home folder: path and content.
    pub(crate) home: &'static [(&'static str, &'static str)],
    /// Executable for a run by hand.
    pub(crate) program: PathBuf,
    /// Folder of other programs that the CLI starts, such as Node.
    pub(crate) bin: PathBuf,
    /// Entry in `models.json`, without the repository.
    model: Value,
}

impl BenchSubject {
    pub(crate) fn fake(agent: &Path) -> Result<Self> {
        Ok(Self {
            name: "fake",
            version: String::new(),
            provider: provider::built_in().remove("codex").context("no recipe for codex")?,
            home: &[],
            program: agent.to_owned(),
            bin: agent.parent().context("no target folder")?.to_owned(),
            model: json!({"driver": "codex", "command": agent, "env": {"FAKE_AGENT": "noop"}}),
        })
    }

    pub(crate) fn real(cli: &'static CliUnderTest, installed: &InstalledClis, mock: SocketAddr) -> Result<Self> {
        Ok(Self {
            name: cli.name,
            version: installed.version(cli)?,
            provider: provider::built_in().remove(cli.name).with_context(|| format!("no recipe for {}", cli.name))?,
            home: cli.home,
            program: installed.bin.join(cli.name),
            bin: installed.bin.clone(),
            model: cli.model(mock, "bench", &json!({})),
        })
    }

    /// `models.json` with one model, for this CLI.
    pub(crate) fn models(&self, environment: &CliEnvironment, warm: u32) -> Value {
        let mut model = self.model.clone();
        model["repoPath"] = json!(environment.repo);
        model["warm"] = json!(warm);
        json!({self.name: model})
    }

    /// The command line that the gateway uses for a streamed turn, without the header that it adds to the prompt.
    pub(crate) fn by_hand(&self, environment: &CliEnvironment) -> Result<CommandLine> {
        let cwd = environment.repo.to_string_lossy();
        let extra: Vec<String> = self.model["args"].as_array().into_iter().flatten().filter_map(text).collect();
        let model = self.model["model"].as_str();
        let permissions = Told::EditConfined;
        let values = Values { prompt: PROMPT, cwd: &cwd, model, permissions, extra: &extra, ..Values::default() };
        Ok(self.provider.command(Form::Streamed, &values)?)
    }

    /// The environment variables that the gateway sets for the CLI.
    pub(crate) fn variables(&self, environment: &CliEnvironment, command: &CommandLine) -> Vec<(OsString, OsString)> {
        let own = self.model["env"].as_object().into_iter().flatten();
        let own = own.filter_map(|(name, value)| Some((name.into(), text(value)?.into())));
        let recipe = command.env.iter().map(|(name, value)| (name.into(), value.into()));
        let common = environment.variables().into_iter().map(|(name, value)| (name.into(), value));
        common.chain(recipe).chain(own).collect()
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
