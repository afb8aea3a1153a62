//! The order a turn would take now, and why: what `/v1/route` and `trunkline check --route` show.

use serde::Serialize;
use trunkline_core::failure::Category;
use trunkline_core::model::{Backend, Model};

use crate::attempt::program::locate;
use crate::router::models::Models;
use crate::router::{CircuitState, Circuits, circuit_of};
use crate::settings::EngineSettings;

/// A name, whom it means, and what happens when they fail.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    pub model: String,
    pub candidates: Vec<Rung>,
    pub max_retries: u32,
    /// After which failures the same provider is tried again.
    pub retry_on: Vec<Category>,
    /// After which failures the next one is tried.
    pub fallback_on: Vec<Category>,
}

/// One candidate.
#[derive(Debug, Clone, Serialize)]
pub struct Rung {
    pub provider: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Our name for what is tried.
    pub model: String,
    /// The model it is told to use; none leaves it to the provider.
    pub upstream: Option<String>,
    pub why: String,
    pub circuit: CircuitState,
    /// What will keep it from answering, as far as can be seen without asking it.
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
        candidates: rungs.collect(),
        max_retries: policy.max_retries,
        retry_on: of(&|category| category.policy().retry),
        fallback_on: of(&|category| policy.falls_back(category)),
    })
}

/// What kind of provider answers for a model, in the words of router.yaml.
pub(crate) fn kind(model: &Model) -> &'static str {
    match &model.backend {
        Backend::Program(provider) if provider.health.is_some() => "cli",
        Backend::Program(_) | Backend::Agent(_) => "agent",
        Backend::Api(_) => "api",
    }
}

/// What is wrong with a provider before it is even asked.
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
        // Its token, where it needs one, is only known to be missing when the LLM says so.
        Backend::Agent(_) => None,
    }
}
