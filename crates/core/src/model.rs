//! Models: names that clients ask for, with the validated settings of their runs.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::{Api, Llm};
use crate::failure::{Category, Failure};
use crate::limits::{RequestedLimits, RunLimits};
use crate::mcp_server::McpServer;
use crate::provider::{OfferedModel, Placeholder, Provider};
use crate::turn::{OnDisconnect, OwnTools};
use crate::url_pattern::UrlPattern;
use crate::vocabulary::Normalize;
use crate::vocabulary::{Permissions, PromptDelivery, SessionKind};

/// Time for which a run waits for the results of the client's tools, unless the model sets it.
pub const DEFAULT_PARK_TIMEOUT: Duration = Duration::from_mins(10);

/// Model with all settings of its runs, resolved and valid.
#[derive(Debug, Clone)]
pub struct Model {
    pub name: String,
    pub backend: Backend,
    pub repo: PathBuf,
    /// File with instructions that open the prompt, relative to `repo`.
    pub agent_file: Option<String>,
    pub worktree: bool,
    pub keep_worktree: bool,
    /// Files that a run adds are listed in a log, which is part of its commit.
    pub log_helpers: bool,
    /// The policy forbids helper programs: the receipt of a run names those that it added.
    pub forbid_helpers: bool,
    /// Upstream model that the CLI is told to use.
    pub upstream: Option<String>,
    /// Known models of the provider.
    pub offered: Vec<OfferedModel>,
    /// Maximum length of an answer if the client sets none.
    pub max_tokens: Option<NonZeroU64>,
    pub permissions: Permissions,
    /// Whether the kernel enforces the permissions as well; none applies the setting of the gateway.
    pub sandbox: Option<Sandbox>,
    /// Additional paths that a run may write.
    pub writable: Vec<PathBuf>,
    /// Additional folders that the built-in agent may read.
    pub readable: Vec<PathBuf>,
    pub limits: RunLimits,
    pub max_turns: Option<u32>,
    pub allowed_tools: Vec<String>,
    pub system_prompt: Option<String>,
    /// Fallback models, in order.
    pub fallback: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Program that replaces the program of the provider.
    pub command: Option<String>,
    /// Arguments that are added to those of the recipe.
    pub args: Vec<String>,
    pub normalize: Normalize,
    /// Whether the history that a client sends is used to find and resume its session.
    pub resume: bool,
    /// Fate of a run whose client disconnects, unless the request sets it.
    pub on_disconnect: OnDisconnect,
    /// Whether a request that a client repeats joins the run of the first one.
    pub join_repeats: bool,
    /// Whether a request is refused if members of it have no effect.
    pub strict_parameters: bool,
    /// Number of warm processes; none derives it from the model's use.
    pub warm: Option<u32>,
    /// Whether the CLI keeps its own tools, unless the request sets it.
    pub own_tools: OwnTools,
    /// Time for which a run waits for the results of the client's tools.
    pub park_timeout: Duration,
    /// MCP servers of every run.
    pub mcp_servers: Vec<McpServer>,
    /// MCP servers that a request may bring along.
    pub allow_mcp_servers: Vec<UrlPattern>,
    /// Configuration for a protocol executable, in addition to the model.
    pub config: Map<String, Value>,
}

impl Model {
    /// Creates a model with default settings.
    #[must_use]
    pub fn new(name: &str, backend: Backend, repo: &Path) -> Self {
        let limits = match &backend {
            Backend::Program(provider) if provider.prompt == PromptDelivery::Request => RunLimits::of_request(None),
            Backend::Program(provider) => RunLimits::of(provider, RequestedLimits::default()),
            Backend::Api(_) => RunLimits::of_request(None),
            Backend::Agent(_) => RunLimits::of_agent(RequestedLimits::default()),
        };
        let recipe = backend.program().cloned();
        let recipe = recipe.as_deref();
        Self {
            name: name.to_owned(),
            backend,
            repo: repo.to_owned(),
            agent_file: None,
            worktree: false,
            keep_worktree: false,
            log_helpers: false,
            forbid_helpers: false,
            upstream: recipe
                .filter(|recipe| recipe.has_placeholder(Placeholder::Model))
                .and_then(|recipe| recipe.default_model.clone()),
            offered: recipe.map(|recipe| recipe.models.clone()).unwrap_or_default(),
            max_tokens: recipe.and_then(|recipe| recipe.max_tokens),
            permissions: Permissions::default(),
            sandbox: None,
            writable: Vec::new(),
            readable: Vec::new(),
            limits,
            max_turns: None,
            allowed_tools: Vec::new(),
            system_prompt: None,
            fallback: Vec::new(),
            env: BTreeMap::new(),
            command: None,
            args: Vec::new(),
            normalize: Normalize::None,
            resume: true,
            on_disconnect: OnDisconnect::Cancel,
            join_repeats: true,
            strict_parameters: false,
            warm: None,
            own_tools: OwnTools::Keep,
            park_timeout: DEFAULT_PARK_TIMEOUT,
            mcp_servers: Vec::new(),
            allow_mcp_servers: Vec::new(),
            config: Map::new(),
        }
    }

    /// Display name of the upstream model.
    #[must_use]
    pub fn display_name(&self) -> Option<&str> {
        let upstream = self.upstream.as_deref()?;
        self.offered.iter().find(|offered| offered.id == upstream)?.name.as_deref()
    }

    /// Returns the same model for requests that clients send on their own, which must do no harm.
    #[must_use]
    pub fn for_side_requests(&self) -> Self {
        Self {
            worktree: false,
            keep_worktree: false,
            log_helpers: false,
            permissions: Permissions::Read,
            resume: false,
            agent_file: None,
            mcp_servers: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the same model on another upstream model of its provider.
    #[must_use]
    pub fn on(&self, upstream: &str) -> Self {
        let name = format!("{}/{upstream}", self.backend.name());
        Self { name, upstream: Some(upstream.to_owned()), ..self.clone() }
    }
}

/// Whether the kernel enforces the permissions `read` and `edit`, in addition to the flags of the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    /// If the kernel supports it.
    #[default]
    On,
    Off,
    /// Always. If the kernel does not support it, nothing is run.
    Required,
}

/// Implementation of a model.
#[derive(Debug, Clone)]
pub enum Backend {
    /// Program that is started for a turn.
    Program(Arc<Provider>),
    /// HTTP service.
    Api(Arc<Api>),
    /// The built-in agent with its LLM.
    Agent(Arc<Llm>),
}

/// Name of the built-in agent, as a provider and as a model.
pub const AGENT: &str = "agent";

impl Backend {
    /// Name of the provider.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Program(provider) => &provider.name,
            Self::Api(api) => &api.name,
            Self::Agent(_) => AGENT,
        }
    }

    #[must_use]
    pub fn program(&self) -> Option<&Arc<Provider>> {
        match self {
            Self::Program(provider) => Some(provider),
            Self::Api(_) | Self::Agent(_) => None,
        }
    }

    /// Whether a turn may contain images.
    #[must_use]
    pub fn takes_images(&self) -> bool {
        match self {
            Self::Program(provider) => provider.has_placeholder(Placeholder::Image),
            Self::Api(_) | Self::Agent(_) => true,
        }
    }

    /// Whether a turn may ask for several answers.
    #[must_use]
    pub fn gives_choices(&self) -> bool {
        match self {
            Self::Api(_) => true,
            Self::Program(_) | Self::Agent(_) => false,
        }
    }

    /// Whether a turn can stop for results of the client's tools and continue with them.
    #[must_use]
    pub fn takes_client_tools(&self) -> bool {
        match self {
            Self::Program(provider) => provider.takes_tools(),
            Self::Api(_) => false,
            Self::Agent(_) => true,
        }
    }

    /// Whether runs can use MCP servers of the configuration and of requests.
    #[must_use]
    pub fn takes_mcp_servers(&self) -> bool {
        match self {
            Self::Program(provider) => provider.takes_tools(),
            Self::Api(_) | Self::Agent(_) => false,
        }
    }

    /// Whether sessions can be resumed.
    #[must_use]
    pub fn resumes(&self) -> bool {
        match self {
            Self::Program(provider) => provider.session != SessionKind::None,
            Self::Api(_) => false,
            Self::Agent(_) => true,
        }
    }

    /// Checks that the session with this id can be resumed.
    pub fn check_session(&self, id: &str) -> Result<(), Failure> {
        match self {
            Self::Program(provider) => provider.check_session(id),
            Self::Api(api) => Err(Failure::new(Category::Validation, format!("{} cannot resume a session", api.name))),
            // The agent looks up the session itself.
            Self::Agent(_) => Ok(()),
        }
    }
}
