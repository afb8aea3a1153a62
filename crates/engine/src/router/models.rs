//! The models that clients can ask for: models by name, the router's names, aliases of these, and the default model for all other
//! names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use trunkline_core::model::{Backend, Model};
use trunkline_core::provider::{self, Provider};
use trunkline_core::turn::Turn;

use crate::attempt::program::locate;
use crate::attempt::template::LaunchTemplates;
use crate::router::{
    Alias, AliasError, AliasRule, Aliases, AskedModels, Candidate, RetryPolicy, Router, SideRequests, Why,
    has_own_tools, takes_tools,
};
use crate::start_error::KnownCli;

/// All models in the order of their file, and the router.
#[derive(Debug, Clone, Default)]
pub struct Models {
    named: Vec<Arc<Model>>,
    /// Default model, which answers for every unknown name.
    default: Option<Arc<Model>>,
    router: Router,
    policy: Arc<RetryPolicy>,
    /// Built-in models. A configured model of the same name takes precedence.
    built_in: Vec<Arc<Model>>,
    /// Other names for models. A model takes precedence over an alias.
    aliases: Aliases,
    side_requests: SideRequests,
    /// All recipes, including those that no model uses.
    recipes: Vec<Arc<Provider>>,
    asked: AskedModels,
    templates: LaunchTemplates,
}

/// Abilities of a provider that clients ask about before they send a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelAbilities {
    /// Name of the provider.
    pub provider: String,
    /// Tools of the client reach the provider.
    pub tools: bool,
    /// Answers match a JSON schema if the client sends one.
    pub schemas: bool,
    pub images: bool,
    pub sessions: bool,
    /// The provider works with tools of its own: a shell, files.
    pub own_tools: bool,
    /// Runs work in a git worktree of their own.
    pub worktree: bool,
    /// Answers come with reasoning. Unknown for a service, and false then.
    pub reasoning: bool,
}

impl Models {
    pub fn new(models: impl IntoIterator<Item = Model>) -> Self {
        Self { named: models.into_iter().map(Arc::new).collect(), ..Self::default() }
    }

    /// Adds a model that also answers for every unknown name.
    #[must_use]
    pub fn with_default(mut self, model: Model) -> Self {
        let model = Arc::new(model);
        if self.named.iter().all(|known| known.name != model.name) {
            self.named.push(Arc::clone(&model));
        }
        self.default = Some(model);
        self
    }

    /// Adds a router. A model takes precedence over a name of the router, and is listed before it.
    #[must_use]
    pub fn with_router(mut self, router: Router, policy: RetryPolicy) -> Self {
        self.router = router;
        self.policy = Arc::new(policy);
        self
    }

    /// Adds built-in models.
    #[must_use]
    pub fn with_built_in(mut self, models: impl IntoIterator<Item = Model>) -> Self {
        self.built_in = models.into_iter().map(Arc::new).collect();
        self
    }

    /// Adds aliases, in order of precedence. Every model must have been added before.
    pub fn with_aliases(mut self, rules: Vec<AliasRule>) -> Result<Self, AliasError> {
        self.aliases = Aliases::resolve(rules, |name| self.is_model(name))?;
        Ok(self)
    }

    /// Sets how side requests run. Returns the name of their model if there is no such model.
    pub fn with_side_requests(mut self, side_requests: SideRequests) -> Result<Self, String> {
        match &side_requests.model {
            Some(name) if !self.is_model(name) && self.alias(name).is_none() => Err(name.clone()),
            Some(_) | None => {
                self.side_requests = side_requests;
                Ok(self)
            }
        }
    }

    /// Lets the built-in agent read these folders.
    #[must_use]
    pub fn reading(mut self, folders: &[PathBuf]) -> Self {
        for model in self.named.iter_mut().chain(&mut self.default).chain(&mut self.built_in) {
            if matches!(model.backend, Backend::Agent(_)) {
                Arc::make_mut(model).readable.extend_from_slice(folders);
            }
        }
        self
    }

    /// Adds recipes, so that the error for an unknown model can explain a CLI that is not configured.
    #[must_use]
    pub fn with_recipes(mut self, recipes: impl IntoIterator<Item = Arc<Provider>>) -> Self {
        self.recipes = recipes.into_iter().collect();
        self
    }

    /// Models of the configuration file.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.named.iter()
    }

    /// Built-in models, except those that the file replaces.
    pub fn built_in(&self) -> impl Iterator<Item = &Arc<Model>> {
        let taken = |name: &str| {
            self.named.iter().any(|model| model.name == name) || self.router.providers.iter().any(|p| p.name == name)
        };
        self.built_in.iter().filter(move |model| !taken(&model.name))
    }

    /// Launch data that all turns of a model share.
    pub(crate) fn templates(&self) -> &LaunchTemplates {
        &self.templates
    }

    pub fn router(&self) -> &Router {
        &self.router
    }

    pub fn policy(&self) -> &Arc<RetryPolicy> {
        &self.policy
    }

    pub fn aliases(&self) -> &Aliases {
        &self.aliases
    }

    pub fn side_requests(&self) -> &SideRequests {
        &self.side_requests
    }

    /// Client and purpose of a turn, if it is a request that the client sends on its own.
    pub fn side_request(&self, turn: &Turn, user_agent: Option<&str>) -> Option<Arc<str>> {
        self.side_requests.recognise(turn, user_agent)
    }

    /// Aliases that no request can reach, each with the reason.
    pub fn unreachable_aliases(&self) -> Vec<String> {
        self.aliases.unreachable(|name| self.is_model(name))
    }

    /// The alias by which a name is found, unless it is the name of a model.
    pub fn alias(&self, name: &str) -> Option<&Alias> {
        if self.aliases.is_empty() || self.is_model(name) { None } else { self.aliases.find(name) }
    }

    /// Names for the list of models. An alias is among them if it has no wildcards.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.named.iter().map(|model| model.name.clone()).collect();
        for name in self.router.names() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.extend(self.built_in().map(|model| model.name.clone()));
        for alias in self.aliases.iter().filter(|alias| alias.is_exact()) {
            if !names.contains(&alias.pattern) {
                names.push(alias.pattern.clone());
            }
        }
        names
    }

    /// The display name of the upstream model behind a name of [`names`](Self::names).
    pub fn display_name(&self, name: &str) -> Option<String> {
        let name = self.alias(name).map_or(name, |alias| alias.target.as_str());
        // The router chooses for each turn, so there is no single model to name.
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

    /// Whether a name has candidates.
    pub fn knows(&self, name: &str) -> bool {
        self.candidates(name).is_some()
    }

    /// Abilities of the provider that is tried first for a name. `None` if the name has no candidates.
    pub fn abilities(&self, name: &str) -> Option<ModelAbilities> {
        let candidates = self.candidates(name)?;
        let model = &candidates.first()?.model;
        let backend = &model.backend;
        let reasoning = match backend {
            Backend::Program(_) | Backend::Agent(_) => true,
            Backend::Api(_) => false,
        };
        Some(ModelAbilities {
            provider: backend.name().to_owned(),
            tools: takes_tools(backend),
            // The gateway checks answers itself; a service gets the schema.
            schemas: true,
            images: backend.takes_images(),
            sessions: backend.resumes(),
            own_tools: has_own_tools(model),
            worktree: model.worktree,
            reasoning,
        })
    }

    /// Whether a provider behind this name can give several answers to one request. True for an unknown name, which is refused
    /// elsewhere.
    pub fn gives_choices(&self, name: &str) -> bool {
        let candidates = self.candidates(self.alias(name).map_or(name, |alias| alias.target.as_str()));
        candidates.is_none_or(|candidates| candidates.iter().any(|candidate| candidate.model.backend.gives_choices()))
    }

    /// Whether a provider behind this name keeps sessions. True for an unknown name, which is refused elsewhere.
    pub fn keeps_sessions(&self, name: &str) -> bool {
        let candidates = self.candidates(name);
        candidates.is_none_or(|candidates| candidates.iter().any(|candidate| candidate.model.backend.resumes()))
    }

    /// Whether repeated requests for this name join the run of the first one.
    pub fn joins_repeats(&self, name: &str) -> bool {
        let candidates = self.candidates(name);
        candidates.is_some_and(|candidates| candidates.first().is_some_and(|first| first.model.join_repeats))
    }

    /// Reason why a CLI of this name, or of its first part, is not a model. `None` if no recipe has that name.
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

    /// Candidates for a name, in order: those of a model, those of the model that an alias leads to, or the default model.
    pub(crate) fn candidates(&self, name: &str) -> Option<Vec<Candidate>> {
        self.model_candidates(name)
            .or_else(|| self.model_candidates(&self.aliases.find(name)?.target))
            .or_else(|| Some(vec![Candidate { model: Arc::clone(self.default.as_ref()?), why: Why::Default }]))
    }

    /// Whether a name is that of a model, and neither an alias nor left to the default model.
    fn is_model(&self, name: &str) -> bool {
        self.model_candidates(name).is_some()
    }

    /// Candidates for the name of a model, in order: a model and its fallbacks, or the candidates of the router.
    fn model_candidates(&self, name: &str) -> Option<Vec<Candidate>> {
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
        self.router.candidates(name, &self.asked).or_else(|| self.found_built_in(name))
    }

    /// Built-in models, by name or as `<name>/<model>` with any model of their LLM.
    fn found_built_in(&self, name: &str) -> Option<Vec<Candidate>> {
        if let Some(model) = self.built_in().find(|model| model.name == name) {
            return Some(vec![Candidate { model: Arc::clone(model), why: Why::Asked }]);
        }
        let (built_in, upstream) = name.split_once('/').filter(|(_, upstream)| !upstream.is_empty())?;
        let model = self.asked.of(self.built_in().find(|model| model.name == built_in)?, upstream);
        Some(vec![Candidate { model, why: Why::AskedModel }])
    }

    /// Candidates without the model's own fallbacks: fallbacks of a fallback are not followed.
    fn alone(&self, name: &str) -> Option<Vec<Candidate>> {
        match self.named.iter().find(|model| model.name == name) {
            Some(model) => Some(vec![Candidate { model: Arc::clone(model), why: Why::Fallback }]),
            None => self.router.candidates(name, &self.asked).or_else(|| self.found_built_in(name)),
        }
    }

    /// All models that may answer.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.named.iter().chain(&self.default).chain(self.router.models()).chain(self.built_in())
    }

    /// Variables that hold keys of providers. A child gets only its own.
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
    fn name_is_looked_up_in_models_then_router_then_default() {
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

    #[test]
    fn alias_is_looked_up_after_models_and_before_the_default() {
        let rule = |pattern: &str, target: &str| AliasRule {
            pattern: pattern.to_owned(),
            target: target.to_owned(),
            file: "models.json",
        };
        let models = Models::new([model("claude-shop"), model("other")]).with_built_in([model("agent")]);
        let rules = vec![
            rule("gpt-5", "gpt-5.2"),
            rule("claude-*", "claude-shop"),
            rule("gpt-*", "agent"),
            rule("other", "agent"),
        ];
        let models = models.with_default(model("backend")).with_aliases(rules).unwrap();
        for (name, expected, pattern) in [
            ("claude-shop", "claude-shop", None),
            ("claude-opus", "claude-shop", Some("claude-*")),
            ("gpt-5", "agent", Some("gpt-5")),
            ("other", "other", None),
            ("agent/gpt-5", "agent/gpt-5", None),
            ("unknown", "backend", None),
        ] {
            assert_eq!(order(&models, name).unwrap(), [expected], "{name}");
            assert_eq!(models.alias(name).map(|alias| alias.pattern.as_str()), pattern, "{name}");
        }
        assert_eq!(models.names(), ["claude-shop", "other", "backend", "agent", "gpt-5"]);
        assert_eq!(models.unreachable_aliases().len(), 1, "a model is called other");
        let dead = Models::new([model("a")]).with_default(model("backend")).with_aliases(vec![rule("x", "y")]);
        assert!(dead.is_err(), "the default model is no target by any name but its own");
    }
}
