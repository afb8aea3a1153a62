//! The options of a model that `models.json` and `router.yaml` have in common: read, resolved and applied in one place.
//!
//! To add an option, add a field to [`ModelOptions`], its name to [`NAMES`], and a line each to [`ModelOptions::read`] and
//! [`ModelOptions::apply`]. Both files take it then. Names are in snake_case here and in `router.yaml`, and in camelCase in
//! `models.json`. How a value is read, and how a wrong one is reported, is up to the [`OptionSource`]: `router.yaml` has a
//! line and a column for each node of its tree, `models.json` has serde's errors.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use trunkline_core::limits::{RequestedLimits, RunLimits};
use trunkline_core::model::{Backend, Model, Sandbox};
use trunkline_core::turn::OwnTools;
use trunkline_core::vocabulary::{Permissions, PromptDelivery};

use super::environment::Environment;

/// The options by name.
pub(super) const NAMES: [&str; 20] = [
    "model",
    "timeout",
    "startup_timeout",
    "idle_timeout",
    "tool_timeout",
    "compact_timeout",
    "agent_file",
    "worktree",
    "keep_worktree",
    "permissions",
    "sandbox",
    "writable",
    "max_turns",
    "max_tokens",
    "allowed_tools",
    "system_prompt",
    "warm",
    "own_tools",
    "park_timeout",
    "env",
];

/// The options as they were written, with paths resolved. An option that was not written keeps the model's value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelOptions {
    pub(crate) model: Option<String>,
    pub(crate) limits: RequestedLimits,
    /// Empty for none at all, not even the default.
    pub(crate) agent_file: Option<String>,
    pub(crate) worktree: bool,
    pub(crate) keep_worktree: bool,
    pub(crate) permissions: Permissions,
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) writable: Vec<PathBuf>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) max_tokens: Option<NonZeroU64>,
    pub(crate) allowed_tools: Vec<String>,
    pub(crate) system_prompt: Option<String>,
    pub(crate) warm: Option<u32>,
    pub(crate) own_tools: Option<OwnTools>,
    pub(crate) park_timeout: Option<Duration>,
    pub(crate) env: BTreeMap<String, String>,
}

/// A model's entry in a file. Each method reads one option by its name in snake_case, and returns nothing, or an empty
/// collection, if it was not written.
pub(super) trait OptionSource {
    type Error;

    fn flag(&self, name: &str) -> Result<bool, Self::Error>;
    /// Text that may be empty.
    fn text(&self, name: &str) -> Result<Option<String>, Self::Error>;
    fn model_id(&self, name: &str) -> Result<Option<String>, Self::Error>;
    fn texts(&self, name: &str) -> Result<Vec<String>, Self::Error>;
    fn count(&self, name: &str) -> Result<Option<u32>, Self::Error>;
    fn tokens(&self, name: &str) -> Result<Option<NonZeroU64>, Self::Error>;
    fn time(&self, name: &str) -> Result<Option<Duration>, Self::Error>;
    fn variables(&self, name: &str) -> Result<BTreeMap<String, String>, Self::Error>;
    /// One of some words, which `T` deserializes from.
    fn word<T: DeserializeOwned, const N: usize>(&self, name: &str, words: [&str; N])
    -> Result<Option<T>, Self::Error>;
}

impl ModelOptions {
    /// Reads every option. Relative paths are relative to `folder`, where the file is.
    pub(super) fn read<S: OptionSource>(
        source: &S,
        folder: &Path,
        environment: &Environment,
    ) -> Result<Self, S::Error> {
        Ok(Self {
            model: source.model_id("model")?,
            limits: RequestedLimits {
                total: source.time("timeout")?,
                startup: source.time("startup_timeout")?,
                idle: source.time("idle_timeout")?,
                tool: source.time("tool_timeout")?,
                compact: source.time("compact_timeout")?,
            },
            agent_file: source.text("agent_file")?,
            worktree: source.flag("worktree")?,
            keep_worktree: source.flag("keep_worktree")?,
            permissions: source.word("permissions", ["read", "edit", "full"])?.unwrap_or_default(),
            sandbox: source.word("sandbox", ["on", "off", "required"])?,
            writable: source.texts("writable")?.iter().map(|path| environment.path(path, folder)).collect(),
            max_turns: source.count("max_turns")?,
            max_tokens: source.tokens("max_tokens")?,
            allowed_tools: source.texts("allowed_tools")?,
            system_prompt: source.text("system_prompt")?,
            warm: source.count("warm")?,
            own_tools: source.word("own_tools", ["keep", "off"])?,
            park_timeout: source.time("park_timeout")?,
            env: source.variables("env")?,
        })
    }

    /// `base` with these options. Flags, permissions, turns and tools replace those of `base` even if they were not written: a
    /// model grants what its own entry says. Folders and variables are added to those of `base`.
    pub(super) fn apply(self, base: Model) -> Model {
        let limits = match &base.backend {
            _ if self.limits == RequestedLimits::default() => base.limits,
            Backend::Program(provider) if provider.prompt != PromptDelivery::Request => {
                RunLimits::of(provider, self.limits)
            }
            Backend::Program(_) | Backend::Api(_) => RunLimits::of_request(self.limits.total),
            Backend::Agent(_) => RunLimits::of_agent(self.limits),
        };
        let mut env = base.env;
        env.extend(self.env);
        Model {
            upstream: self.model.or(base.upstream),
            limits,
            agent_file: match self.agent_file {
                Some(file) => Some(file).filter(|file| !file.is_empty()),
                None => base.agent_file,
            },
            worktree: self.worktree,
            keep_worktree: self.keep_worktree,
            permissions: self.permissions,
            sandbox: self.sandbox.or(base.sandbox),
            writable: [base.writable, self.writable].concat(),
            max_turns: self.max_turns,
            max_tokens: self.max_tokens.or(base.max_tokens),
            allowed_tools: self.allowed_tools,
            system_prompt: self.system_prompt.or(base.system_prompt),
            warm: self.warm.or(base.warm),
            own_tools: self.own_tools.unwrap_or(base.own_tools),
            park_timeout: self.park_timeout.unwrap_or(base.park_timeout),
            env,
            ..base
        }
    }
}

/// The spelling of a name in `models.json`: `keepWorktree` for `keep_worktree`.
pub(super) fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut spelled, word| {
        let mut letters = word.chars();
        spelled.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        spelled + letters.as_str()
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;

    use super::*;

    /// Has nothing, and remembers what it was asked for.
    #[derive(Default)]
    struct AskedNames(RefCell<Vec<String>>);

    impl AskedNames {
        fn nothing<T: Default>(&self, name: &str) -> Result<T, Infallible> {
            self.0.borrow_mut().push(name.to_owned());
            Ok(T::default())
        }
    }

    impl OptionSource for AskedNames {
        type Error = Infallible;

        fn flag(&self, name: &str) -> Result<bool, Infallible> {
            self.nothing(name)
        }

        fn text(&self, name: &str) -> Result<Option<String>, Infallible> {
            self.nothing(name)
        }

        fn model_id(&self, name: &str) -> Result<Option<String>, Infallible> {
            self.nothing(name)
        }

        fn texts(&self, name: &str) -> Result<Vec<String>, Infallible> {
            self.nothing(name)
        }

        fn count(&self, name: &str) -> Result<Option<u32>, Infallible> {
            self.nothing(name)
        }

        fn tokens(&self, name: &str) -> Result<Option<NonZeroU64>, Infallible> {
            self.nothing(name)
        }

        fn time(&self, name: &str) -> Result<Option<Duration>, Infallible> {
            self.nothing(name)
        }

        fn variables(&self, name: &str) -> Result<BTreeMap<String, String>, Infallible> {
            self.nothing(name)
        }

        fn word<T: DeserializeOwned, const N: usize>(
            &self,
            name: &str,
            _words: [&str; N],
        ) -> Result<Option<T>, Infallible> {
            self.nothing(name).map(|(): ()| None)
        }
    }

    #[test]
    fn every_option_that_is_read_is_listed_and_the_reverse() {
        let source = AskedNames::default();
        let environment = Environment { env: Vec::new(), folder: "/".into() };
        let Ok(options) = ModelOptions::read(&source, Path::new("/"), &environment);
        assert_eq!(options, ModelOptions::default());
        assert_eq!(source.0.into_inner(), NAMES);
    }

    #[test]
    fn names_are_spelled_in_camel_case_for_json() {
        for (name, spelled) in
            [("model", "model"), ("keep_worktree", "keepWorktree"), ("on_disconnect", "onDisconnect")]
        {
            assert_eq!(camel_case(name), spelled);
        }
    }
}
