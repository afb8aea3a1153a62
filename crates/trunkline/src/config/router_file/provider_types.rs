//! Types of providers in `router.yaml`.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use trunkline_core::api::ServiceKey;
use trunkline_core::provider::Provider;

/// `type` of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouterProviderType {
    /// An executable of the provider protocol.
    Cli,
    /// A coding agent, run by its recipe.
    Agent,
    /// An HTTP API.
    Api,
}

impl RouterProviderType {
    pub(super) const ALL: [Self; 3] = [Self::Cli, Self::Agent, Self::Api];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Agent => "agent",
            Self::Api => "api",
        }
    }
}

/// Program or service behind a provider.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RouterProviderKind {
    /// `cli`: an executable with the commands `generate`, `stream` and `health`.
    Executable {
        path: String,
        args: Vec<String>,
        /// Passed to the executable with each request, unchanged.
        request_config: Map<String, Value>,
    },
    /// `api`: an HTTP server with OpenAI's chat completions.
    Api {
        /// Without a trailing slash.
        base_url: String,
        key: Option<ServiceKey>,
    },
    /// `agent`: a coding agent, run by its recipe.
    Agent {
        provider: Arc<Provider>,
        /// Runs instead of the recipe's own program.
        command: Option<String>,
        /// Added to the recipe's arguments.
        args: Vec<String>,
        repo: PathBuf,
    },
}
