//! Configuration: files as written become models that are valid. The environment is read here and nowhere else.

mod agent;
mod backend;
mod discover;
mod error;
mod models_file;
mod repository;
mod routed;
mod router_file;
mod surroundings;
mod times;

pub(crate) use discover::{FILES, Place};
pub(crate) use error::ConfigError;
pub(crate) use surroundings::{Surroundings, normal};
pub(crate) use times::parse_span;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use trunkline_agent::tools::offered;
use trunkline_core::api::Llm;
use trunkline_core::model::{Backend, Model};
use trunkline_core::near::near;
use trunkline_core::provider::{self, NoPlaceholder, PLACEHOLDERS, Permissions, Provider, no_placeholders};
use trunkline_engine::router::{Policy, Router};
use trunkline_engine::{Models, locate};

use discover::{MODELS_FILE, PROVIDERS_FILE, ROUTER_FILE};
use repository::no_worktree;
use times::assumed;

/// What the files and the environment come to.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) models: Models,
    pub(crate) providers: BTreeMap<String, Arc<Provider>>,
    /// Things that are odd but not wrong: said at start, and by `trunkline check`.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Reads everything there is. A folder without files, and an environment without a backend, gives a model for
    /// each CLI on the search path. The built-in agent is always there.
    pub(crate) fn load(place: &Place, around: &Surroundings) -> Result<Self, ConfigError> {
        let mut warnings = Vec::from_iter(place.notice());
        let providers = providers(place, &mut warnings)?;
        let (router, policy) = match place.file(ROUTER_FILE) {
            Some(path) => {
                let file = router_file::load(&path, &providers, around, &mut warnings)?;
                (routed::router(file.providers, &around.folder), file.policy)
            }
            None => (Router::default(), Policy::default()),
        };
        let agents = agent::models(around, &mut warnings)?;
        let others = Models::default().with_router(router.clone(), policy.clone()).with_built_in(agents.clone());
        let mut models = match place.file(MODELS_FILE) {
            Some(path) => models_file::load(&path, &providers, &others, around, &mut warnings)?,
            None => Vec::new(),
        };
        let backend = backend::active(&providers, around, &mut warnings)?;
        let nothing_written = place.file(MODELS_FILE).is_none() && place.file(ROUTER_FILE).is_none();
        if nothing_written && backend.is_none() {
            models = installed(&providers, around);
        }
        for model in &models {
            warnings.extend(doubts("model", model, around));
        }
        for routed in &router.providers {
            warnings.extend(doubts("provider", &routed.model, around));
        }
        let mut all = Models::new(models).with_router(router, policy).with_built_in(agents);
        all = all.with_recipes(providers.values().cloned());
        if let Some(backend) = backend {
            all = all.with_default(backend);
        }
        Ok(Self { models: all, providers, warnings })
    }
}

impl Config {
    /// The error for a name that no model has: near names, and why a known CLI is not a model here.
    pub(crate) fn unknown_model(&self, name: &str, around: &Surroundings) -> String {
        let offered = self.models.names();
        let known = self.providers.values().flat_map(|p| std::iter::once(&p.name).chain(&p.aliases));
        let mut names: Vec<&str> = offered.iter().chain(known).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        let close = near(name, names.iter().copied());
        if let Some(provider) = close.first().and_then(|first| self.not_offered(first)) {
            let state = match locate(provider, None, around.search_path()) {
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

    /// A provider that is known by this name and is not a model.
    fn not_offered(&self, name: &str) -> Option<&Arc<Provider>> {
        let provider =
            self.providers.values().find(|p| p.name == name || p.aliases.iter().any(|alias| alias == name))?;
        (!self.models.knows(name) && !self.models.knows(&provider.name)).then_some(provider)
    }

    /// Whether a model needs the LLM that comes with the gateway.
    pub(crate) fn wants_mock(&self) -> bool {
        self.models.all().any(|model| matches!(&model.backend, Backend::Agent(llm) if **llm == Llm::Embedded))
    }
}

/// The built-in providers, and the user's own over them.
pub(crate) fn providers(
    place: &Place,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<String, Arc<Provider>>, ConfigError> {
    let mut providers = provider::built_in();
    if let Some(path) = place.file(PROVIDERS_FILE) {
        let text = read(&path)?;
        let own = provider::parse(&text).map_err(|error| ConfigError::toml(&path, &text, &error))?;
        let renamed = provider::renamed_keys_of_file(&text);
        warnings.extend(renamed.iter().map(|(name, key)| format!("provider {name}: {key}")));
        for (name, provider) in &own {
            provider.check_live().map_err(|error| {
                let error_at = format!("[{name}.live]");
                let message = format!("provider {name}: {error}");
                ConfigError::new(&path, message).at(&text, &error_at).hint(error.hint())
            })?;
            let typo = |typo: NoPlaceholder| {
                ConfigError::new(&path, format!("provider {name}: {typo}")).at(&text, &typo.argument)
            };
            let doubts = placeholders(provider.no_placeholders(), &[]).map_err(typo)?;
            warnings.extend(doubts.iter().map(|doubt| format!("provider {name}: {doubt}")));
            warnings.extend(provider.timeout.and_then(|time| assumed(&format!("provider {name}"), "timeout", time)));
        }
        providers.extend(own);
    }
    Ok(providers.into_iter().map(|(name, provider)| (name, Arc::new(provider))).collect())
}

/// Warnings about the words in braces of a recipe's arguments, and of those that are added to them; an error for a typo.
fn placeholders(of_recipe: Vec<NoPlaceholder>, added: &[String]) -> Result<Vec<String>, NoPlaceholder> {
    let of_added = no_placeholders(added.iter().map(String::as_str));
    let (typos, odd): (Vec<_>, Vec<_>) = of_recipe.into_iter().chain(of_added).partition(|none| !none.near.is_empty());
    if let Some(typo) = typos.into_iter().next() {
        return Err(typo);
    }
    let filled = |arg: &&String| PLACEHOLDERS.iter().any(|name| arg.contains(&format!("{{{name}}}")));
    let unfilled = added.iter().filter(filled).map(|arg| {
        format!("{arg:?} in `args` is passed as it stands: placeholders are filled in only in a recipe's own arguments")
    });
    Ok(odd.iter().map(|none| format!("{none}; passed as it stands")).chain(unfilled).collect())
}

/// A model for each supported CLI that is installed, in the current folder.
fn installed(providers: &BTreeMap<String, Arc<Provider>>, around: &Surroundings) -> Vec<Model> {
    providers
        .values()
        .filter(|provider| locate(provider, None, around.search_path()).is_ok())
        .map(|provider| plain_model(&provider.name, Backend::Program(Arc::clone(provider)), &around.folder))
        .flat_map(|model| {
            let offered: Vec<Model> = model.offered.iter().map(|offered| model.on(&offered.id)).collect();
            std::iter::once(model).chain(offered)
        })
        .collect()
}

/// A model with nothing set; it reads the instructions of its repository, if it has any.
pub(crate) fn plain_model(name: &str, backend: Backend, repo: &Path) -> Model {
    let reader = backend.program().map(|provider| &**provider);
    Model { agent_file: agent_file(None, reader), ..Model::new(name, backend, repo) }
}

/// The file that opens a model's prompts: the one that is named, if any. Where none is named it is `AGENTS.md`, unless the
/// CLI reads that by itself: it would be told twice.
fn agent_file(named: Option<String>, reader: Option<&Provider>) -> Option<String> {
    match named {
        Some(file) => Some(file).filter(|file| !file.is_empty()),
        None if reader.is_some_and(|provider| provider.reads_agents_md) => None,
        None => Some(models_file::AGENT_FILE.to_owned()),
    }
}

/// What will keep a model, or a provider of the router, from running, or from running as it says.
fn doubts(what: &str, model: &Model, around: &Surroundings) -> Vec<String> {
    let name = if what == "model" { &model.name } else { model.backend.name() };
    let mut doubts = Vec::new();
    if !model.repo.is_dir() {
        doubts.push(format!("{what} {name}: repoPath {} is not a folder", model.repo.display()));
    } else if let Some(file) = &model.agent_file
        && !model.repo.join(file).exists()
        && file != models_file::AGENT_FILE
    {
        doubts.push(format!("{what} {name}: agentFile {file} does not exist in {}", model.repo.display()));
    }
    if let Some((why, remedy)) = no_worktree_of(model) {
        doubts.push(format!("{what} {name}: worktree: {why} ({remedy})"));
    }
    if let Backend::Program(provider) = &model.backend
        && let Err(failure) = locate(provider, model.command.as_deref(), around.search_path())
    {
        let hint = failure.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        doubts.push(format!("{what} {name}: {failure}{hint}"));
    }
    if let Backend::Agent(_) = &model.backend {
        let all = offered(Permissions::Full, &[]);
        for unknown in model.allowed_tools.iter().filter(|tool| !all.contains(&tool.as_str())) {
            doubts.push(format!(
                "{what} {name}: allowedTools: the agent has no tool {unknown:?}, only {}",
                all.join(", ")
            ));
        }
    }
    let ignored = trunkline_engine::ignored_options(model);
    if !ignored.is_empty() {
        doubts.push(format!("{what} {name}: {} cannot honour {}; ignored", model.backend.name(), ignored.join(", ")));
    }
    doubts
}

/// Why a model that wants a worktree cannot have one, and what to do about it.
pub(crate) fn no_worktree_of(model: &Model) -> Option<(String, &'static str)> {
    if model.worktree && model.repo.is_dir() { no_worktree(&model.repo) } else { None }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    const LARGEST: u64 = 4 * 1024 * 1024;
    let too_large = fs::metadata(path).is_ok_and(|metadata| metadata.len() > LARGEST);
    if too_large {
        return Err(ConfigError::new(path, "larger than 4 MiB"));
    }
    fs::read_to_string(path).map_err(|error| ConfigError::new(path, error.to_string()))
}
