//! The two ways to run the fast agent, and the configuration of a gateway that has both.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::json;
use tempfile::TempDir;

/// Model with codex's recipe whose answer is [`DELTAS`] deltas at once.
pub(super) const DELTAS_MODEL: &str = "codex-deltas";

/// Deltas of an answer of [`DELTAS_MODEL`].
pub(super) const DELTAS: usize = 1000;

/// A way to run the fast agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProfileRecipe {
    /// An executable with the provider protocol.
    Plain,
    /// The recipe of codex: permissions, a home of its own, codex's output.
    Codex,
}

impl ProfileRecipe {
    pub(super) const ALL: [Self; 2] = [Self::Plain, Self::Codex];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Codex => "codex",
        }
    }

    /// Model that answers at once.
    pub(super) fn model(self) -> &'static str {
        match self {
            Self::Plain => "plain-noop",
            Self::Codex => "codex-noop",
        }
    }

    /// Model whose answer is ten deltas, the first at once.
    pub(super) fn stream_model(self) -> &'static str {
        match self {
            Self::Plain => "plain-stream",
            Self::Codex => "codex-stream",
        }
    }
}

/// Creates a folder with the configuration of a gateway for both recipes.
///
/// The agent is copied there: the gateway makes a system call for each folder above a program, and the counts would depend
/// on where the repository is.
pub(super) fn configured_folder(agent: &Path) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    // Not in the folder of the configuration, which the gateway watches.
    let [repo, bin] = ["repo", "bin"].map(|name| folder.path().join(name));
    let program = bin.join("agent");
    fs::create_dir(&repo)?;
    fs::create_dir(&bin)?;
    fs::copy(agent, &program)?;
    let codex = |mode: &str| json!({"driver": "codex", "repoPath": repo, "command": program, "warm": 0, "env": {"FAKE_AGENT": mode}});
    let models = json!({"codex-noop": codex("noop"), "codex-stream": codex("stream"), DELTAS_MODEL: codex("deltas")});
    // JSON is YAML.
    let plain = |name: &str, mode: &str| json!({"name": name, "type": "cli", "config": {"path": program, "model": "fast", "env": {"FAKE_AGENT": mode}}});
    let router = json!({"providers": [plain("plain-noop", "noop"), plain("plain-stream", "stream")]});
    fs::write(folder.path().join("models.json"), models.to_string())?;
    fs::write(folder.path().join("router.yaml"), router.to_string())?;
    Ok(folder)
}
