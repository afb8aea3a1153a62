//! What clients can ask for: models by name, the router's names, and the one that answers for all others.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use trunkline_core::model::{Backend, Model};
use trunkline_core::provider::{self, Provider};

use crate::attempt::program::locate;
use crate::router::{Candidate, RetryPolicy, Router, Why};
use crate::start_error::KnownCli;

/// The models there are, in the order of their file, and the router.
#[derive(Debug, Clone, Default)]
pub struct Models {
    named: Vec<Arc<Model>>,
    /// Answers for every name that is not there.
    default: Option<Arc<Model>>,
    router: Router,
    policy: Arc<RetryPolicy>,
    /// There whatever the files say, unless they mean another by the name.
    built_in: Vec<Arc<Model>>,
    /// Every recipe there is, whether some model uses it or not.
    recipes: Vec<Arc<Provider>>,
}

impl Models {
    pub fn new(models: impl IntoIterator<Item = Model>) -> Self {
        Self { named: models.into_iter().map(Arc::new).collect(), ..Self::default() }
    }

    /// The same, with one more that answers for every other name too.
    #[must_use]
    pub fn with_default(mut self, model: Model) -> Self {
        let model = Arc::new(model);
        if self.named.iter().all(|known| known.name != model.name) {
            self.named.push(Arc::clone(&model));
        }
        self.default = Some(model);
        self
    }

    /// The same, with the router's names behind those of the models.
    #[must_use]
    pub fn with_router(mut self, router: Router, policy: RetryPolicy) -> Self {
        self.router = router;
        self.policy = Arc::new(policy);
        self
    }

    /// The same, with what is there whatever the files say.
    #[must_use]
    pub fn with_built_in(mut self, models: impl IntoIterator<Item = Model>) -> Self {
        self.built_in = models.into_iter().map(Arc::new).collect();
        self
    }

    /// The same, with these folders for the built-in agent to read.
    #[must_use]
    pub fn reading(mut self, folders: &[PathBuf]) -> Self {
        for model in self.named.iter_mut().chain(&mut self.default).chain(&mut self.built_in) {
            if matches!(model.backend, Backend::Agent(_)) {
                Arc::make_mut(model).readable.extend_from_slice(folders);
            }
        }
        self
    }

    /// The same, knowing these recipes: a name that is one of them and no model is explained.
    #[must_use]
    pub fn with_recipes(mut self, recipes: impl IntoIterator<Item = Arc<Provider>>) -> Self {
        self.recipes = recipes.into_iter().collect();
        self
    }

    /// The models of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.named.iter()
    }

    /// What is there besides, less what the file has another of.
    pub fn built_in(&self) -> impl Iterator<Item = &Arc<Model>> {
        let taken = |name: &str| {
            self.named.iter().any(|model| model.name == name) || self.router.providers.iter().any(|p| p.name == name)
        };
        self.built_in.iter().filter(move |model| !taken(&model.name))
    }

    pub fn router(&self) -> &Router {
        &self.router
    }

    pub fn policy(&self) -> &Arc<RetryPolicy> {
        &self.policy
    }

    /// Every name a client can find in a list.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.named.iter().map(|model| model.name.clone()).collect();
        for name in self.router.names() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.extend(self.built_in().map(|model| model.name.clone()));
        names
    }

    /// The display name of the upstream model behind a name of [`names`](Self::names).
    pub fn display_name(&self, name: &str) -> Option<String> {
        // The router chooses anew for each turn: there is no one model to name.
        if name == "auto" || name.starts_with("auto:") {
            return None;
        }
        self.candidates(name)?.first()?.model.display_name().map(str::to_owned)
    }

    /// Whether the built-in agent answers for a name.
    pub fn is_agent(&self, name: &str) -> bool {
        let first = self.candidates(name).and_then(|candidates| candidates.into_iter().next());
        first.is_some_and(|candidate| matches!(candidate.model.backend, Backend::Agent(_)))
    }

    /// Whether a name means something, whoever it is.
    pub fn knows(&self, name: &str) -> bool {
        self.candidates(name).is_some()
    }

    /// Whether some provider behind this name keeps sessions. A name that means nothing is somebody else's to refuse.
    pub fn keeps_sessions(&self, name: &str) -> bool {
        let candidates = self.candidates(name);
        candidates.is_none_or(|candidates| candidates.iter().any(|candidate| candidate.model.backend.resumes()))
    }

    /// Why a CLI of this name, or of its first part, is no model; none where no recipe has that name.
    pub(crate) fn known_cli(&self, name: &str, search_path: Option<&OsStr>) -> Option<KnownCli> {
        let name = name.split('/').next().unwrap_or(name);
        let recipe = self.recipes.iter().find(|recipe| recipe.name == name || recipe.program == name)?;
        let program = &recipe.program;
        Some(match locate(recipe, None, search_path) {
            Err(_) => {
                let places =
                    || std::env::split_paths(search_path.unwrap_or_default()).map(|at| at.display().to_string());
                let remedy = match &recipe.install {
                    Some(install) => format!("install it: {install}"),
                    None => format!("it was looked for in {}", places().collect::<Vec<_>>().join(", ")),
                };
                KnownCli {
                    why: format!("{name} is not installed: there is no program {program} on the gateway's PATH"),
                    remedy: format!("{remedy}; then restart the gateway or send it SIGHUP"),
                }
            }
            Ok(located) => KnownCli {
                why: format!("{name} is installed, but no configured model uses it"),
                remedy: format!(
                    "found at {}; add a model with \"driver\": \"{name}\" to models.json",
                    located.path.display()
                ),
            },
        })
    }

    /// Where a turn for this name may be tried, in order: a model and its fallbacks, or the router's candidates.
    pub(crate) fn candidates(&self, name: &str) -> Option<Vec<Candidate>> {
        if let Some(model) = self.named.iter().find(|model| model.name == name) {
            let mut candidates = vec![Candidate { model: Arc::clone(model), why: Why::Asked }];
            for other in &model.fallback {
                for found in self.alone(other).unwrap_or_default() {
                    if candidates.iter().all(|known| !known.is(&found)) {
                        candidates.push(Candidate { why: Why::Fallback, ..found });
                    }
                }
            }
            return Some(candidates);
        }
        self.router.candidates(name).or_else(|| self.found_built_in(name)).or_else(|| {
            self.default.as_ref().map(|model| vec![Candidate { model: Arc::clone(model), why: Why::Default }])
        })
    }

    /// What is built in, by its name or as `<name>/<model>` on any model of its LLM.
    fn found_built_in(&self, name: &str) -> Option<Vec<Candidate>> {
        if let Some(model) = self.built_in().find(|model| model.name == name) {
            return Some(vec![Candidate { model: Arc::clone(model), why: Why::Asked }]);
        }
        let (built_in, upstream) = name.split_once('/').filter(|(_, upstream)| !upstream.is_empty())?;
        let model = self.built_in().find(|model| model.name == built_in)?.on(upstream);
        Some(vec![Candidate { model: Arc::new(model), why: Why::AskedModel }])
    }

    /// The same without a model's own fallbacks: a fallback's fallbacks are not followed.
    fn alone(&self, name: &str) -> Option<Vec<Candidate>> {
        match self.named.iter().find(|model| model.name == name) {
            Some(model) => Some(vec![Candidate { model: Arc::clone(model), why: Why::Fallback }]),
            None => self.router.candidates(name).or_else(|| self.found_built_in(name)),
        }
    }

    /// Everything that may answer.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.named.iter().chain(&self.default).chain(self.router.models()).chain(self.built_in())
    }

    /// The variables that hold somebody's key: a program gets only its own.
    pub(crate) fn all_keys(&self) -> BTreeSet<&str> {
        let ours = self.all().flat_map(|model| match &model.backend {
            Backend::Program(provider) => provider.keys.iter().map(String::as_str).collect::<Vec<_>>(),
            Backend::Api(api) => api.key.iter().map(|key| key.variable.as_str()).collect(),
            Backend::Agent(llm) => {
                llm.api().and_then(|api| api.key.as_ref()).map(|key| key.variable.as_str()).into_iter().collect()
            }
        });
        ours.chain(provider::built_in_keys().iter().map(String::as_str)).collect()
    }
}

#[cfg(test)]
mod tests {
    use trunkline_core::model::Model;

    use crate::router::Routed;
    use crate::router::test_models::model;

    use super::*;

    fn order(models: &Models, name: &str) -> Option<Vec<String>> {
        let candidates = models.candidates(name)?;
        Some(candidates.into_iter().map(|candidate| candidate.model.name.clone()).collect())
    }

    #[test]
    fn a_model_then_the_router_then_whoever_answers_for_all() {
        let with = |name: &str, fallback: &[&str]| Model {
            fallback: fallback.iter().map(|&name| name.to_owned()).collect(),
            ..model(name)
        };
        let routed = |name: &str, priority| Routed {
            name: name.to_owned(),
            priority,
            model: Arc::new(model(name)),
            hints: Vec::new(),
        };
        let router = Router { providers: vec![routed("local", 1), routed("cloud", 2), routed("a", 3)] };
        let models = Models::new([with("a", &["b", "auto", "b"]), with("b", &["a"])]);
        let models = models.with_router(router, RetryPolicy::default());
        for (name, expected) in [
            ("a", Some(vec!["a", "b", "cloud", "local"])),
            ("b", Some(vec!["b", "a"])),
            ("auto", Some(vec!["a", "cloud", "local"])),
            ("local", Some(vec!["local"])),
            ("c", None),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(order(&models, name), expected, "{name}");
        }
        assert_eq!(models.names(), ["a", "b", "auto", "local", "cloud"]);
        let models = models.with_built_in([model("agent"), model("b")]);
        for (name, expected) in [("agent", "agent"), ("agent/large", "agent/large"), ("b", "b")] {
            assert_eq!(order(&models, name).unwrap()[0], expected, "{name}");
        }
        assert_eq!(models.names(), ["a", "b", "auto", "local", "cloud", "agent"]);
        let models = models.with_default(model("backend"));
        assert_eq!(order(&models, "c"), Some(vec!["backend".to_owned()]));
        assert_eq!(order(&models, "local"), Some(vec!["local".to_owned()]));
    }
}
