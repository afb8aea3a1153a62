//! The built-in agent, as the environment has it: on which LLM, and which of its models.

use std::sync::Arc;

use trunkline_core::api::{Api, Key, Llm};
use trunkline_core::model::{AGENT, Backend, Model};

use super::{ConfigError, Surroundings, plain_model};

const MAX_TOKENS: u64 = 4096;

/// The agent in the current folder, which is always there; and, where a small model is named, the agent on that.
pub(super) fn models(around: &Surroundings, warnings: &mut Vec<String>) -> Result<Vec<Model>, ConfigError> {
    let llm = Arc::new(llm(around)?);
    let agent = plain_model(AGENT, Backend::Agent(Arc::clone(&llm)), &around.folder);
    match &*llm {
        Llm::Embedded => {
            let set =
                ["LLM_AUTH_TOKEN", "LLM_DEFAULT_MODEL"].into_iter().filter(|name| around.variable(name).is_some());
            warnings.extend(set.map(|name| {
                format!("{name} is set, but LLM_BASE_URL is not: the model agent runs on the built-in mock")
            }));
            Ok(vec![agent])
        }
        Llm::Service { .. } => {
            if around.variable("LLM_DEFAULT_MODEL").is_none() {
                warnings.push("LLM_DEFAULT_MODEL is not set: the LLM of the model agent is asked for none".to_owned());
            }
            let small = around.variable("LLM_SMALL_FAST_MODEL").map(|small| agent.on(small));
            let upstream = around.variable("LLM_DEFAULT_MODEL").map(str::to_owned);
            Ok(std::iter::once(Model { upstream, ..agent }).chain(small).collect())
        }
    }
}

fn llm(around: &Surroundings) -> Result<Llm, ConfigError> {
    let Some(base_url) = around.variable("LLM_BASE_URL") else { return Ok(Llm::Embedded) };
    if !["http://", "https://"].iter().any(|scheme| base_url.starts_with(scheme)) {
        return Err(ConfigError::elsewhere(format!("LLM_BASE_URL: {base_url:?} is not the address of an LLM"))
            .hint("write it like http://localhost:11434/v1"));
    }
    let key = around
        .variable("LLM_AUTH_TOKEN")
        .map(|token| Key { variable: "LLM_AUTH_TOKEN".to_owned(), value: Some(token.to_owned()) });
    let max_tokens =
        match around.variable("LLM_MAX_TOKENS") {
            Some(number) => number.parse().ok().filter(|tokens| *tokens > 0).ok_or_else(|| {
                ConfigError::elsewhere(format!("LLM_MAX_TOKENS: {number:?} is not a number of tokens"))
            })?,
            None => MAX_TOKENS,
        };
    Ok(Llm::Service { api: Api { name: AGENT.to_owned(), base_url: base_url.to_owned(), key }, max_tokens })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn around(variables: &[(&str, &str)]) -> Surroundings {
        let env = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Surroundings { env, folder: PathBuf::from("/repo") }
    }

    #[test]
    fn the_environment_chooses_the_llm_and_its_models() {
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
            let models = models(&around(&variables), &mut warnings).unwrap();
            let found: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
            assert_eq!((found, warnings.len()), (names, warned), "{variables:?} {warnings:?}");
        }
        let both = [service, ("LLM_DEFAULT_MODEL", "big"), ("LLM_SMALL_FAST_MODEL", "mini")];
        let models = models(&around(&both), &mut Vec::new()).unwrap();
        let upstream: Vec<_> = models.iter().map(|model| model.upstream.as_deref()).collect();
        assert_eq!(upstream, [Some("big"), Some("mini")]);
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (variables, message) in [
            (vec![("LLM_BASE_URL", "localhost:1")], "LLM_BASE_URL: \"localhost:1\" is not the address of an LLM"),
            (
                vec![("LLM_BASE_URL", "http://h"), ("LLM_MAX_TOKENS", "many")],
                "LLM_MAX_TOKENS: \"many\" is not a number of tokens",
            ),
        ] {
            let error = models(&around(&variables), &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}
