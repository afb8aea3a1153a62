//! Settings of an engine.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use trunkline_core::api::Api;
use trunkline_core::model::Sandbox;
use trunkline_core::secret::Secrets;
use trunkline_store::Durability;

use crate::admission::Caps;

/// Settings that are fixed for the lifetime of an engine.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Environment that runs inherit from.
    pub env: Vec<(OsString, OsString)>,
    /// State folder: private files, homes of CLIs, and the list of worktrees.
    pub state: PathBuf,
    /// Folder in which worktrees are created.
    pub worktrees: PathBuf,
    pub caps: Caps,
    /// Confinement of runs whose model does not set it.
    pub sandbox: Sandbox,
    /// Time limit of one git process, and of saving the work of a run.
    pub git_timeout: Duration,
    /// Time between the stop signal to a CLI and SIGKILL.
    pub grace: Duration,
    /// Time that a CLI gets to exit by itself after its last event.
    pub linger: Duration,
    /// Failures that the record of a run survives.
    pub durability: Durability,
    pub secrets: Secrets,
    /// Embedded mock LLM, used by the built-in agent when no other LLM is configured.
    pub embedded_llm: Option<Arc<Api>>,
}

impl EngineSettings {
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }
}
