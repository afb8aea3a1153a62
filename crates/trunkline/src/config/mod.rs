//! Configuration: reads the files and the environment, validates them, and resolves them into models.
//!
//! The environment is read in this module ([`Environment::read`]) and nowhere else.

mod agent;
mod aliases;
mod backend;
mod base_model;
mod discover;
mod environment;
mod error;
mod mcp_servers;
mod model_options;
mod models_file;
mod providers_file;
mod repository;
mod routed;
mod router_file;
mod side_requests;
mod times;
mod variables;
mod warnings;

#[cfg(feature = "discord")]
pub(crate) use backend::DEFAULT_BACKEND;
pub(crate) use base_model::plain_model;
pub(crate) use discover::{ConfigFolder, FILES};
pub(crate) use environment::{Environment, normal};
pub(crate) use error::ConfigError;
pub(crate) use models_file::ServerSettings;
pub(crate) use providers_file::providers;
pub(crate) use times::parse_span;
pub(crate) use warnings::no_worktree_of;

use std::collections::BTreeMap;
use std::sync::Arc;

use trunkline_core::api::Llm;
use trunkline_core::model::{Backend, Model};
use trunkline_core::near::near;
use trunkline_core::provider::Provider;
use trunkline_engine::{Models, locate};

use aliases::AliasFile;
use discover::{MODELS_FILE, ROUTER_FILE};
use models_file::ModelsFile;
use router_file::RouterFile;
use warnings::{WarningSubject, model_warnings};

/// The resolved configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) models: Models,
    pub(crate) providers: BTreeMap<String, Arc<Provider>>,
    pub(crate) server: ServerSettings,
    /// Problems that do not prevent the start. Logged at start and shown by `trunkline check`.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Loads the configuration. If no file names models and the environment has no backend, each CLI on the search path is
    /// a model. The built-in agent always is one.
    pub(crate) fn load(folder: &ConfigFolder, environment: &Environment) -> Result<Self, ConfigError> {
        let mut warnings = Vec::from_iter(folder.notice());
        let providers = providers(folder, &mut warnings)?;
        let (models_path, router_path) = (folder.file(MODELS_FILE), folder.file(ROUTER_FILE));
        let router_file = match &router_path {
            Some(path) => router_file::load(path, &providers, environment, &mut warnings)?,
            None => RouterFile::default(),
        };
        let (router, policy) = (routed::router(router_file.providers, &environment.folder), router_file.policy);
        let agents = agent::models(environment, &mut warnings)?;
        let others = Models::default().with_router(router.clone(), policy.clone()).with_built_in(agents.clone());
        let models_file = match &models_path {
            Some(path) => models_file::load(path, &providers, &others, environment, &mut warnings)?,
            None => ModelsFile::default(),
        };
        let backend = backend::active(&providers, environment, &mut warnings)?;
        let no_models_file = models_path.is_none() || models_file.has_only_sections();
        let models = match no_models_file && router_path.is_none() && backend.is_none() {
            true => installed(&providers, environment),
            false => models_file.models,
        };
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
        let files = [
            AliasFile { name: MODELS_FILE, path: models_path.unwrap_or_default(), aliases: models_file.aliases },
            AliasFile { name: ROUTER_FILE, path: router_path.unwrap_or_default(), aliases: router_file.aliases },
        ];
        let all = aliases::add(all, &files, &mut warnings)?;
        let all = side_requests::add(all, folder, &models_file.server.side_requests)?;
        Ok(Self { models: all, providers, server: models_file.server, warnings })
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
