//! A model: a name clients ask for, and everything a run of it needs to know. Resolved and valid.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::{Api, Llm};
use crate::failure::{Category, Failure};
use crate::limits::{RequestedLimits, RunLimits};
use crate::provider::{OfferedModel, Placeholder, Provider};
use crate::turn::OnDisconnect;
use crate::vocabulary::{Permissions, PromptDelivery, SessionKind};

// Alias for the users in other crates. TODO: import it from `vocabulary` there.
#[doc(hidden)]
pub use crate::vocabulary::Normalize;

#[derive(Debug, Clone)]
pub struct Model {
    pub name: String,
    pub backend: Backend,
    pub repo: PathBuf,
    /// The instructions that open the prompt, relative to `repo`.
    pub agent_file: Option<String>,
    pub worktree: bool,
    pub keep_worktree: bool,
    /// The files a run adds are listed in a log beside them, as part of its commit.
    pub log_helpers: bool,
    /// Helper programs that a run adds are named in its receipt: the policy forbids them.
    pub forbid_helpers: bool,
    /// The upstream model the CLI is told to use.
    pub upstream: Option<String>,
    /// The models its provider is known to have.
    pub offered: Vec<OfferedModel>,
    /// The longest answer it is asked for, where the client does not say.
    pub max_tokens: Option<NonZeroU64>,
    pub permissions: Permissions,
    /// Whether the permissions are held by us as well; none leaves it to the gateway's own setting.
    pub sandbox: Option<Sandbox>,
    /// What a run may write besides.
    pub writable: Vec<PathBuf>,
    /// Folders that the built-in agent may read besides.
    pub readable: Vec<PathBuf>,
    pub limits: RunLimits,
    pub max_turns: Option<u32>,
    pub allowed_tools: Vec<String>,
    pub system_prompt: Option<String>,
    /// Other models to try, in order.
    pub fallback: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Runs instead of the provider's own program.
    pub command: Option<String>,
    /// Added to the recipe's arguments.
    pub args: Vec<String>,
    pub normalize: Normalize,
    /// Whether a client that sends its whole history is recognised by it, and its conversation resumed.
    pub resume: bool,
    /// What becomes of a run whose client goes away, unless the client says otherwise.
    pub on_disconnect: OnDisconnect,
    /// How many processes are kept ready for it, if that is not left to its use.
    pub warm: Option<u32>,
    /// What a protocol executable is configured with, beside the model.
    pub config: Map<String, Value>,
}

impl Model {
    /// A model with nothing set.
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
            warm: None,
            config: Map::new(),
        }
    }

    /// The display name of the upstream model.
    #[must_use]
    pub fn display_name(&self) -> Option<&str> {
        let upstream = self.upstream.as_deref()?;
        self.offered.iter().find(|offered| offered.id == upstream)?.name.as_deref()
    }

    /// The same provider on another model of its own.
    #[must_use]
    pub fn on(&self, upstream: &str) -> Self {
        let name = format!("{}/{upstream}", self.backend.name());
        Self { name, upstream: Some(upstream.to_owned()), ..self.clone() }
    }
}

/// Whether the permissions `read` and `edit` are held by the kernel, whatever the CLI makes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    /// Where the kernel can.
    #[default]
    On,
    Off,
    /// Where the kernel cannot, nothing is run.
    Required,
}

/// What answers for a model.
#[derive(Debug, Clone)]
pub enum Backend {
    /// A program that is started for each turn.
    Program(Arc<Provider>),
    /// A service that is called.
    Api(Arc<Api>),
    /// The agent that is built in, on this LLM.
    Agent(Arc<Llm>),
}

/// What the built-in agent is called, as a provider and as a model.
pub const AGENT: &str = "agent";

impl Backend {
    /// The provider's name.
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

    /// Whether it can be shown pictures.
    #[must_use]
    pub fn takes_images(&self) -> bool {
        match self {
            Self::Program(provider) => provider.has_placeholder(Placeholder::Image),
            Self::Api(_) | Self::Agent(_) => true,
        }
    }

    /// Whether it keeps conversations that can be gone on with.
    #[must_use]
    pub fn resumes(&self) -> bool {
        match self {
            Self::Program(provider) => provider.session != SessionKind::None,
            Self::Api(_) => false,
            Self::Agent(_) => true,
        }
    }

    /// Whether it can go on with this conversation, or why not.
    pub fn check_session(&self, id: &str) -> Result<(), Failure> {
        match self {
            Self::Program(provider) => provider.check_session(id),
            Self::Api(api) => Err(Failure::new(Category::Validation, format!("{} cannot resume a session", api.name))),
            // It looks for the conversation itself.
            Self::Agent(_) => Ok(()),
        }
    }
}
