//! Who is measured: the fake agent, and the real CLIs against the mock LLM.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use trunkline_core::provider::{self, CommandLine, Form, Provider, Told, Values};

use crate::conformance::clis::Cli;
use crate::conformance::install::Installed;
use crate::conformance::place::Place;

/// What every CLI is asked: a trigger in `conformance/scenarios.json`, answered at once and without a tool.
pub(crate) const PROMPT: &str = "How tall is the lighthouse?";

pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// Its recipe.
    pub(crate) provider: Provider,
    /// Files of its home.
    pub(crate) home: &'static [(&'static str, &'static str)],
    /// What a person starts.
    pub(crate) program: PathBuf,
    /// Where it finds others, such as Node.
    pub(crate) bin: PathBuf,
    /// Its entry in `models.json`, but for the repository.
    model: Value,
}

impl Subject {
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

    pub(crate) fn real(cli: &'static Cli, installed: &Installed, mock: SocketAddr) -> Result<Self> {
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

    /// `models.json` with its one model.
    pub(crate) fn models(&self, place: &Place, warm: u32) -> Value {
        let mut model = self.model.clone();
        model["repoPath"] = json!(place.repo);
        model["warm"] = json!(warm);
        json!({self.name: model})
    }

    /// The command as the gateway has it, streamed, but for the prompt's header: what it is compared with.
    pub(crate) fn by_hand(&self, place: &Place) -> Result<CommandLine> {
        let cwd = place.repo.to_string_lossy();
        let extra: Vec<String> = self.model["args"].as_array().into_iter().flatten().filter_map(text).collect();
        let model = self.model["model"].as_str();
        let permissions = Told::EditConfined;
        let values = Values { prompt: PROMPT, cwd: &cwd, model, permissions, extra: &extra, ..Values::default() };
        Ok(self.provider.command(Form::Streamed, &values)?)
    }

    /// All that the gateway sets for it as well.
    pub(crate) fn environment(&self, place: &Place, command: &CommandLine) -> Vec<(OsString, OsString)> {
        let own = self.model["env"].as_object().into_iter().flatten();
        let own = own.filter_map(|(name, value)| Some((name.into(), text(value)?.into())));
        let recipe = command.env.iter().map(|(name, value)| (name.into(), value.into()));
        let usual = place.environment().into_iter().map(|(name, value)| (name.into(), value));
        usual.chain(recipe).chain(own).collect()
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
