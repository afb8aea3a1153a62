//! Configuration: reads the files and the environment, validates them, and resolves them into models.
//!
//! The environment is read in this module ([`Environment::read`]) and nowhere else.

mod agent;
mod backend;
mod base_model;
mod discover;
mod environment;
mod error;
mod model_options;
mod models_file;
mod providers_file;
mod repository;
mod routed;
mod router_file;
mod times;
mod warnings;

#[cfg(feature = "discord")]
pub(crate) use backend::DEFAULT_BACKEND;
pub(crate) use base_model::plain_model;
pub(crate) use discover::{ConfigFolder, FILES};
pub(crate) use environment::{Environment, normal};
pub(crate) use error::ConfigError;
pub(crate) use providers_file::providers;
pub(crate) use times::parse_span;
pub(crate) use warnings::no_worktree_of;

use std::collections::BTreeMap;
use std::sync::Arc;

use trunkline_core::api::Llm;
use trunkline_core::model::{Backend, Model};
use trunkline_core::near::near;
use trunkline_core::provider::Provider;
use trunkline_engine::router::{RetryPolicy, Router};
use trunkline_engine::{Models, locate};

use discover::{MODELS_FILE, ROUTER_FILE};
use warnings::{WarningSubject, model_warnings};

/// The resolved configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) models: Models,
    pub(crate) providers: BTreeMap<String, Arc<Provider>>,
    /// Problems that do not prevent the start. Logged at start and shown by `trunkline check`.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Loads the configuration. Without files and without a backend in the environment, each CLI on the search path is a
    /// model. The built-in agent always is one.
    pub(crate) fn load(folder: &ConfigFolder, environment: &Environment) -> Result<Self, ConfigError> {
        let mut warnings = Vec::from_iter(folder.notice());
        let providers = providers(folder, &mut warnings)?;
        let (router, policy) = match folder.file(ROUTER_FILE) {
            Some(path) => {
                let file = router_file::load(&path, &providers, environment, &mut warnings)?;
                (routed::router(file.providers, &environment.folder), file.policy)
            }
            None => (Router::default(), RetryPolicy::default()),
        };
        let agents = agent::models(environment, &mut warnings)?;
        let others = Models::default().with_router(router.clone(), policy.clone()).with_built_in(agents.clone());
        let mut models = match folder.file(MODELS_FILE) {
            Some(path) => models_file::load(&path, &providers, &others, environment, &mut warnings)?,
            None => Vec::new(),
        };
        let backend = backend::active(&providers, environment, &mut warnings)?;
        let no_files = folder.file(MODELS_FILE).is_none() && folder.file(ROUTER_FILE).is_none();
        if no_files && backend.is_none() {
            models = installed(&providers, environment);
        }
        for model in &models {
            warnings.extend(model_warnings(WarningSubject::Model, model, environment));
        }
        for routed in &router.providers {
            warnings.extend(model_warnings(WarningSubject::Provider, &routed.model, environment));
        }
        let mut all = Models::new(models).with_router(router, policy).with_built_in(agents);
        all = all.with_recipes(providers.values().cloned());
        if let Some(backend) = backend {
            all = all.with_default(backend);
        }
        Ok(Self { models: all, providers, warnings })
    }

    /// Error message for an unknown model: similar names, and why a known CLI is not a model here.
    pub(crate) fn unknown_model(&self, name: &str, environment: &Environment) -> String {
        let offered = self.models.names();
        let known = self.providers.values().flat_map(|p| std::iter::once(&p.name).chain(&p.aliases));
        let mut names: Vec<&str> = offered.iter().chain(known).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        let close = near(name, names.iter().copied());
        if let Some(provider) = close.first().and_then(|first| self.not_offered(first)) {
            let state = match locate(provider, None, environment.search_path()) {
                Ok(_) => "is installed, but the configuration does not name it".to_owned(),
                Err(_) => {
                    let install = provider.install.as_ref().map(|install| format!(" ({install})")).unwrap_or_default();
                    format!("is not installed{install}")
                }
            };
            return match close.iter().any(|close| close == name) {
                true => format!("unknown model {name:?}: {} {state}", provider.name),
                false => {
                    format!("unknown model {name:?}; did you mean {}? {} {state}", close.join(" or "), provider.name)
                }
            };
        }
        match close.as_slice() {
            [] => format!("unknown model {name:?}; see: trunkline models"),
            close => format!("unknown model {name:?}; did you mean {}?", close.join(" or ")),
        }
    }

    /// The provider of this name or alias, unless it is a model.
    fn not_offered(&self, name: &str) -> Option<&Arc<Provider>> {
        let provider =
            self.providers.values().find(|p| p.name == name || p.aliases.iter().any(|alias| alias == name))?;
        (!self.models.knows(name) && !self.models.knows(&provider.name)).then_some(provider)
    }

    /// Whether a model needs the embedded mock LLM.
    pub(crate) fn wants_mock(&self) -> bool {
        self.models.all().any(|model| matches!(&model.backend, Backend::Agent(llm) if **llm == Llm::Embedded))
    }
}

/// A model for each supported CLI that is installed, in the current folder.
fn installed(providers: &BTreeMap<String, Arc<Provider>>, environment: &Environment) -> Vec<Model> {
    providers
        .values()
        .filter(|provider| locate(provider, None, environment.search_path()).is_ok())
        .map(|provider| plain_model(&provider.name, Backend::Program(Arc::clone(provider)), &environment.folder))
        .flat_map(|model| {
            let offered: Vec<Model> = model.offered.iter().map(|offered| model.on(&offered.id)).collect();
            std::iter::once(model).chain(offered)
        })
        .collect()
}
