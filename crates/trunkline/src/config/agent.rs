//! The built-in agent: its LLM and models, from the environment.

use std::sync::Arc;

use trunkline_core::api::{Api, Llm, ServiceKey};
use trunkline_core::model::{AGENT, Backend, Model};

use super::base_model::plain_model;
use super::environment::Environment;
use super::error::ConfigError;

/// Default of `LLM_MAX_TOKENS`.
const DEFAULT_MAX_TOKENS: u64 = 4096;

/// The agent in the current folder, and a second one if `LLM_SMALL_FAST_MODEL` is set.
pub(super) fn models(environment: &Environment, warnings: &mut Vec<String>) -> Result<Vec<Model>, ConfigError> {
    let llm = Arc::new(llm(environment)?);
    let agent = plain_model(AGENT, Backend::Agent(Arc::clone(&llm)), &environment.folder);
    match &*llm {
        Llm::Embedded => {
            let set =
                ["LLM_AUTH_TOKEN", "LLM_DEFAULT_MODEL"].into_iter().filter(|name| environment.variable(name).is_some());
            warnings.extend(set.map(|name| {
                format!("{name} is set, but LLM_BASE_URL is not: the model agent runs on the built-in mock")
            }));
            Ok(vec![agent])
        }
        Llm::Service { .. } => {
            if environment.variable("LLM_DEFAULT_MODEL").is_none() {
                warnings.push(
                    "LLM_DEFAULT_MODEL is not set: requests of the model agent to its LLM name no model".to_owned(),
                );
            }
            let small = environment.variable("LLM_SMALL_FAST_MODEL").map(|small| agent.on(small));
            let upstream = environment.variable("LLM_DEFAULT_MODEL").map(str::to_owned);
            Ok(std::iter::once(Model { upstream, ..agent }).chain(small).collect())
        }
    }
}

fn llm(environment: &Environment) -> Result<Llm, ConfigError> {
    let Some(base_url) = environment.variable("LLM_BASE_URL") else { return Ok(Llm::Embedded) };
    if !["http://", "https://"].iter().any(|scheme| base_url.starts_with(scheme)) {
        return Err(ConfigError::elsewhere(format!("LLM_BASE_URL: {base_url:?} is not the address of an LLM"))
            .hint("write it like http://localhost:11434/v1"));
    }
    let key = environment
        .variable("LLM_AUTH_TOKEN")
        .map(|token| ServiceKey { variable: "LLM_AUTH_TOKEN".to_owned(), value: Some(token.to_owned()) });
    let max_tokens =
        match environment.variable("LLM_MAX_TOKENS") {
            Some(number) => number.parse().ok().filter(|tokens| *tokens > 0).ok_or_else(|| {
                ConfigError::elsewhere(format!("LLM_MAX_TOKENS: {number:?} is not a number of tokens"))
            })?,
            None => DEFAULT_MAX_TOKENS,
        };
    Ok(Llm::Service { api: Api { name: AGENT.to_owned(), base_url: base_url.to_owned(), key }, max_tokens })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let env = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Environment { env, folder: PathBuf::from("/repo") }
    }

    #[test]
    fn environment_chooses_the_llm_and_its_models() {
        let service = ("LLM_BASE_URL", "http://localhost:1/v1");
        for (variables, names, warned) in [
            (vec![], vec!["agent"], 0),
            (vec![("LLM_AUTH_TOKEN", "secret")], vec!["agent"], 1),
            (vec![service], vec!["agent"], 1),
            (vec![service, ("LLM_DEFAULT_MODEL", "big")], vec!["agent"], 0),
            (
                vec![service, ("LLM_DEFAULT_MODEL", "big"), ("LLM_SMALL_FAST_MODEL", "azure/mini")],
                vec!["agent", "agent/azure/mini"],
                0,
            ),
        ] {
            let mut warnings = Vec::new();
            let models = models(&environment(&variables), &mut warnings).unwrap();
            let found: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
            assert_eq!((found, warnings.len()), (names, warned), "{variables:?} {warnings:?}");
        }
        let both = [service, ("LLM_DEFAULT_MODEL", "big"), ("LLM_SMALL_FAST_MODEL", "mini")];
        let models = models(&environment(&both), &mut Vec::new()).unwrap();
        let upstream: Vec<_> = models.iter().map(|model| model.upstream.as_deref()).collect();
        assert_eq!(upstream, [Some("big"), Some("mini")]);
    }

    #[test]
    fn rejects_invalid_variables() {
        for (variables, message) in [
            (vec![("LLM_BASE_URL", "localhost:1")], "LLM_BASE_URL: \"localhost:1\" is not the address of an LLM"),
            (
                vec![("LLM_BASE_URL", "http://h"), ("LLM_MAX_TOKENS", "many")],
                "LLM_MAX_TOKENS: \"many\" is not a number of tokens",
            ),
        ] {
            let error = models(&environment(&variables), &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}
