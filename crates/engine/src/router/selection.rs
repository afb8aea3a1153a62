//! The router's own names: `auto`, `auto:<hint>`, `<provider>` and `<provider>/<model>`, each a list of candidates.

use std::fmt;
use std::sync::Arc;

use trunkline_core::model::{AGENT, Backend, Model};

use super::AskedModels;

/// Providers that can replace each other, in the order of router.yaml.
#[derive(Debug, Clone, Default)]
pub struct Router {
    pub providers: Vec<Routed>,
}

/// One provider of the router, with a model for each hint it supports.
#[derive(Debug, Clone)]
pub struct Routed {
    pub name: String,
    /// Providers with a higher priority come first.
    pub priority: i64,
    /// The provider on its default model.
    pub model: Arc<Model>,
    pub hints: Vec<(String, Arc<Model>)>,
}

/// A model that may answer a turn.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) model: Arc<Model>,
    pub(crate) why: Why,
}

/// Reason for the position of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// The client asked for it by name.
    Asked,
    /// The client asked for it as `<provider>/<model>`.
    AskedModel,
    /// It is the default model, which answers for every unknown name.
    Default,
    /// It is listed in the `fallback` of the requested model.
    Fallback,
    Priority(i64),
    /// It has a model for the hint.
    Hint {
        hint: String,
        priority: i64,
    },
    /// It has no model for the hint, and is tried on its default model after those that have.
    NoHint {
        hint: String,
        priority: i64,
    },
}

impl Candidate {
    /// Whether both are the same provider on the same model.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.model.name == other.model.name && circuit_of(&self.model) == circuit_of(&other.model)
    }
}

/// Name of the circuit for a model: its program or service, by name and location.
pub(crate) fn circuit_of(model: &Model) -> String {
    match &model.backend {
        Backend::Program(provider) => {
            let program = model.command.as_ref().unwrap_or(&provider.program);
            [&provider.name, " ", program].concat()
        }
        Backend::Api(api) => [&api.name, " ", &api.base_url].concat(),
        Backend::Agent(llm) => format!("{AGENT} {}", llm.api().map_or("", |api| &api.base_url)),
    }
}

impl Router {
    /// Candidates for a name; `None` for an unknown name.
    pub(crate) fn candidates(&self, name: &str, asked: &AskedModels) -> Option<Vec<Candidate>> {
        if name == "auto" {
            let found = self.by_priority();
            return (!found.is_empty()).then(|| {
                let candidate = |routed: &Routed| Candidate {
                    model: Arc::clone(&routed.model),
                    why: Why::Priority(routed.priority),
                };
                found.into_iter().map(candidate).collect()
            });
        }
        if let Some(hint) = name.strip_prefix("auto:") {
            return self.hinted(hint);
        }
        let (provider, model) = match name.split_once('/') {
            Some((provider, model)) => (provider, Some(model)),
            None => (name, None),
        };
        let routed = self.providers.iter().find(|routed| routed.name == provider)?;
        let (model, why) = match model {
            None => (Arc::clone(&routed.model), Why::Asked),
            Some("") => return None,
            Some(explicit) => (asked.of(&routed.model, explicit), Why::AskedModel),
        };
        Some(vec![Candidate { model, why }])
    }

    /// Names for the list of models.
    pub(crate) fn names(&self) -> Vec<String> {
        if self.providers.is_empty() {
            return Vec::new();
        }
        let mut names = vec!["auto".to_owned()];
        for (hint, _) in self.providers.iter().flat_map(|routed| &routed.hints) {
            let name = format!("auto:{hint}");
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.extend(self.providers.iter().map(|routed| routed.name.clone()));
        for routed in &self.providers {
            names.extend(routed.model.offered.iter().map(|offered| format!("{}/{}", routed.name, offered.id)));
        }
        names
    }

    /// All models that can become candidates, except those that a client names as `<provider>/<model>`.
    pub(crate) fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.providers
            .iter()
            .flat_map(|routed| std::iter::once(&routed.model).chain(routed.hints.iter().map(|(_, model)| model)))
    }

    /// Candidates for a hint. A hint that no provider supports is an error of the client, so it has none.
    fn hinted(&self, hint: &str) -> Option<Vec<Candidate>> {
        let order = self.by_priority();
        let model_for =
            |routed: &Routed| routed.hints.iter().find(|(known, _)| known == hint).map(|(_, model)| Arc::clone(model));
        let with = order.iter().filter_map(|routed| {
            let why = Why::Hint { hint: hint.to_owned(), priority: routed.priority };
            Some(Candidate { model: model_for(routed)?, why })
        });
        let mut candidates: Vec<Candidate> = with.collect();
        if candidates.is_empty() {
            return None;
        }
        candidates.extend(order.iter().filter(|routed| model_for(routed).is_none()).map(|routed| Candidate {
            model: Arc::clone(&routed.model),
            why: Why::NoHint { hint: hint.to_owned(), priority: routed.priority },
        }));
        Some(candidates)
    }

    /// Highest priority first; equal priorities stay in the order of the file.
    fn by_priority(&self) -> Vec<&Routed> {
        let mut order: Vec<&Routed> = self.providers.iter().collect();
        order.sort_by_key(|routed| std::cmp::Reverse(routed.priority));
        order
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked | Self::AskedModel => f.write_str("asked for by name"),
            Self::Default => f.write_str("default model for unknown names"),
            Self::Fallback => f.write_str("in the model's fallback"),
            Self::Priority(priority) => write!(f, "priority {priority}"),
            Self::Hint { hint, priority } => write!(f, "has a model for {hint}, priority {priority}"),
            Self::NoHint { hint, priority } => {
                write!(f, "has no model for {hint}: its default, after those that have one, priority {priority}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::router::test_models::model;

    use super::*;

    /// Name, priority, default model, and a model for each hint.
    type Given<'a> = (&'a str, i64, Option<&'a str>, &'a [(&'a str, &'a str)]);

    fn router(providers: &[Given<'_>]) -> Router {
        let routed = |(name, priority, default, hints): &Given<'_>| {
            let bare = model(name);
            let own = default.map_or_else(|| bare.clone(), |default| bare.on(default));
            let hints = hints.iter().map(|(hint, upstream)| ((*hint).to_owned(), Arc::new(bare.on(upstream))));
            Routed { name: (*name).to_owned(), priority: *priority, model: Arc::new(own), hints: hints.collect() }
        };
        Router { providers: providers.iter().map(routed).collect() }
    }

    #[test]
    fn each_name_has_its_candidates_in_order() {
        let router = router(&[
            ("local", 50, Some("llama"), &[("fast", "llama-mini"), ("codegen", "deepseek")]),
            ("cloud", 100, Some("gpt"), &[("capable", "gpt-pro")]),
            ("claude", 100, None, &[("codegen", "opus")]),
        ]);
        for (name, expected) in [
            ("auto", Some(vec!["cloud/gpt", "claude", "local/llama"])),
            ("auto:codegen", Some(vec!["claude/opus", "local/deepseek", "cloud/gpt"])),
            ("auto:fast", Some(vec!["local/llama-mini", "cloud/gpt", "claude"])),
            ("auto:codgen", None),
            ("auto:", None),
            ("local", Some(vec!["local/llama"])),
            ("local/llama3.2:latest", Some(vec!["local/llama3.2:latest"])),
            ("cloud/meta/llama-4", Some(vec!["cloud/meta/llama-4"])),
            ("local/", None),
            ("missing", None),
            ("missing/x", None),
        ] {
            let found = router.candidates(name, &AskedModels::default()).map(|candidates| {
                candidates.into_iter().map(|candidate| candidate.model.name.clone()).collect::<Vec<_>>()
            });
            assert_eq!(found, expected.map(|names| names.into_iter().map(str::to_owned).collect()), "{name}");
        }
        let upstream = |name: &str| router.candidates(name, &AskedModels::default()).unwrap()[0].model.upstream.clone();
        assert_eq!((upstream("claude"), upstream("claude/haiku")), (None, Some("haiku".to_owned())));
        assert_eq!(router.names(), ["auto", "auto:fast", "auto:codegen", "auto:capable", "local", "cloud", "claude"]);
        assert_eq!(
            Router::default().candidates("auto", &AskedModels::default()).map(|candidates| candidates.len()),
            None
        );
    }
}
