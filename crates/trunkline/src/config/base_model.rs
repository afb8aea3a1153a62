//! Models with nothing configured: the base that options are applied to.

use std::path::Path;

use trunkline_core::model::{Backend, Model};
use trunkline_core::provider::Provider;

/// Default instructions file of a repository.
pub(super) const AGENT_FILE: &str = "AGENTS.md";

/// A model with defaults only. It reads the instructions of its repository, if there are any.
pub(crate) fn plain_model(name: &str, backend: Backend, repo: &Path) -> Model {
    let provider = backend.program().map(|provider| &**provider);
    Model { agent_file: default_agent_file(provider), ..Model::new(name, backend, repo) }
}

/// The file that opens a model's prompts if none is configured: `AGENTS.md`, unless the CLI reads that by itself and would
/// get it twice.
pub(super) fn default_agent_file(provider: Option<&Provider>) -> Option<String> {
    match provider.is_some_and(|provider| provider.reads_agents_md) {
        true => None,
        false => Some(AGENT_FILE.to_owned()),
    }
}
