//! Models for tests of what is decided about models without running one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use trunkline_core::model::{Backend, Limits, Model, Normalize};
use trunkline_core::provider::{self, Permissions};

/// A model of an executable that is not there.
pub(crate) fn model(name: &str) -> Model {
    Model {
        name: name.to_owned(),
        backend: Backend::Program(Arc::new(provider::executable(name, "/no/such/program", &[]))),
        repo: PathBuf::from("/"),
        agent_file: None,
        worktree: false,
        keep_worktree: false,
        log_helpers: false,
        upstream: None,
        permissions: Permissions::default(),
        limits: Limits::of_request(None),
        max_turns: None,
        allowed_tools: Vec::new(),
        system_prompt: None,
        fallback: Vec::new(),
        env: BTreeMap::new(),
        command: None,
        args: Vec::new(),
        normalize: Normalize::None,
        config: serde_json::Map::new(),
    }
}
