//! The backend profile: one CLI chosen by `AGENT_BACKEND`, for bridges that know no model names.

use std::collections::BTreeMap;
use std::sync::Arc;

use trunkline_core::model::{Backend, Model};
use trunkline_core::provider::{Placeholder, Provider};
use trunkline_core::vocabulary::Permissions;
use trunkline_engine::locate;

use super::base_model::plain_model;
use super::environment::Environment;
use super::error::ConfigError;
use super::warnings::{WarningSubject, model_warnings};

/// Backends that are listed before the others. The only place in Rust that prefers providers by name.
const LISTED_FIRST: [&str; 4] = ["claude", "codex", "gemini", "opencode"];

/// The backend of a bridge, where neither a model nor `AGENT_BACKEND` is set.
#[cfg(feature = "discord")]
pub(crate) const DEFAULT_BACKEND: &str = LISTED_FIRST[0];

const DEFAULT_MAX_TURNS: u32 = 25;

/// Variables that are used only with `AGENT_BACKEND`.
const PROFILE_VARIABLES: [&str; 4] = ["BACKEND_CLI_PATH", "BACKEND_MODEL", "BACKEND_MAX_TURNS", "ALLOWED_TOOLS"];

/// Warning about variables of the profile that are set without `AGENT_BACKEND`.
fn unused(environment: &Environment) -> Option<String> {
    let set: Vec<&str> = PROFILE_VARIABLES.into_iter().filter(|name| environment.variable(name).is_some()).collect();
    let are = if set.len() == 1 { "is" } else { "are" };
    (!set.is_empty()).then(|| {
        format!(
            "{} {are} set, but AGENT_BACKEND is not: ignored; set AGENT_BACKEND (claude, codex, …) to use it here, or run \
             `trunkline discord`, whose backend it configures",
            set.join(", ")
        )
    })
}

/// The model that answers for every unknown name, if `AGENT_BACKEND` is set.
pub(super) fn active(
    providers: &BTreeMap<String, Arc<Provider>>,
    environment: &Environment,
    warnings: &mut Vec<String>,
) -> Result<Option<Model>, ConfigError> {
    let Some(name) = environment.variable("AGENT_BACKEND") else {
        warnings.extend(unused(environment));
        return Ok(None);
    };
    let Some(provider) = providers.values().find(|p| p.name == name || p.aliases.iter().any(|alias| alias == name))
    else {
        let others = providers.keys().map(String::as_str).filter(|name| !LISTED_FIRST.contains(name));
        let valid: Vec<&str> = LISTED_FIRST.into_iter().chain(others).collect();
        return Err(ConfigError::elsewhere(format!(
            "AGENT_BACKEND: unknown backend {name:?}; valid ones: {}",
            valid.join(", ")
        )));
    };
    let mut model = plain_model(&provider.name, Backend::Program(Arc::clone(provider)), &environment.folder);
    model.permissions = Permissions::Full;
    model.upstream = environment.variable("BACKEND_MODEL").map(str::to_owned);
    model.command = environment.variable("BACKEND_CLI_PATH").map(str::to_owned);
    model.allowed_tools = environment
        .variable("ALLOWED_TOOLS")
        .map(|tools| tools.split(',').map(str::trim).filter(|tool| !tool.is_empty()).map(str::to_owned).collect())
        .unwrap_or_default();
    model.max_turns = match environment.variable("BACKEND_MAX_TURNS") {
        Some(turns) => Some(turns.parse().map_err(|_not_a_number| {
            ConfigError::elsewhere(format!("BACKEND_MAX_TURNS: {turns:?} is not a number of turns"))
        })?),
        // A default, so there is no warning if the CLI has no such option.
        None => provider.has_placeholder(Placeholder::MaxTurns).then_some(DEFAULT_MAX_TURNS),
    };
    if let Err(failure) = locate(provider, model.command.as_deref(), environment.search_path()) {
        let path = model.command.as_deref().unwrap_or(&provider.program);
        return Err(ConfigError::elsewhere(format!("backend {} at {path}: {failure}", provider.name))
            .hint(failure.hint.unwrap_or_default()));
    }
    warnings.extend(model_warnings(WarningSubject::Model, &model, environment));
    Ok(Some(model))
}
