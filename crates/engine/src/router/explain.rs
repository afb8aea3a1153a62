//! The order in which a turn would be tried now, with reasons, for `/v1/route` and `trunkline check --route`.

use serde::Serialize;
use trunkline_core::failure::Category;
use trunkline_core::model::{Backend, Model};

use crate::attempt::program::locate;
use crate::router::models::Models;
use crate::router::{Alias, CircuitState, Circuits, circuit_of};
use crate::settings::EngineSettings;

/// Candidates of a name, and the rules after a failure.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The name that was asked for.
    pub model: String,
    /// The alias by which the name was found, and the model that it leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<Alias>,
    pub candidates: Vec<Rung>,
    pub max_retries: u32,
    /// Categories of failures after which the same provider is retried.
    pub retry_on: Vec<Category>,
    /// Categories of failures after which the next candidate is tried.
    pub fallback_on: Vec<Category>,
}

/// One candidate.
#[derive(Debug, Clone, Serialize)]
pub struct Rung {
    pub provider: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Name of the model.
    pub model: String,
    /// Model that is passed to the provider; `None` for the provider's default.
    pub upstream: Option<String>,
    pub why: String,
    pub circuit: CircuitState,
    /// A problem that is visible without starting the provider.
    pub problem: Option<String>,
}

pub(crate) fn explain(
    circuits: &Circuits,
    settings: &EngineSettings,
    models: &Models,
    name: &str,
) -> Option<Explanation> {
    let policy = models.policy();
    let rungs = models.candidates(name)?.into_iter().map(|candidate| {
        let model = &candidate.model;
        Rung {
            provider: model.backend.name().to_owned(),
            kind: kind(model),
            model: model.name.clone(),
            upstream: model.upstream.clone(),
            why: candidate.why.to_string(),
            circuit: circuits.state(&circuit_of(model)),
            problem: problem(settings, model),
        }
    });
    let of =
        |wanted: &dyn Fn(Category) -> bool| Category::ALL.into_iter().filter(|category| wanted(*category)).collect();
    Some(Explanation {
        model: name.to_owned(),
        alias: models.alias(name).cloned(),
        candidates: rungs.collect(),
        max_retries: policy.max_retries,
        retry_on: of(&|category| category.policy().retry),
        fallback_on: of(&|category| policy.falls_back(category)),
    })
}

/// Kind of a model's provider, in the terms of router.yaml.
pub(crate) fn kind(model: &Model) -> &'static str {
    match &model.backend {
        Backend::Program(provider) if provider.health.is_some() => "cli",
        Backend::Program(_) | Backend::Agent(_) => "agent",
        Backend::Api(_) => "api",
    }
}

/// A problem of a provider that is visible without starting it.
pub(crate) fn problem(settings: &EngineSettings, model: &Model) -> Option<String> {
    match &model.backend {
        Backend::Program(provider) => {
            let located = locate(provider, model.command.as_deref(), settings.variable("PATH"));
            located.err().map(|failure| failure.message)
        }
        Backend::Api(api) => {
            let key = api.key.as_ref().filter(|key| key.value.is_none())?;
            Some(format!("the variable {} is not set", key.variable))
        }
        // Whether its token is missing is known only from an answer of the LLM.
        Backend::Agent(_) => None,
    }
}
