//! `models.json`: names clients ask for, and what each of them runs.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use trunkline_core::limits::{Asked, Limits};
use trunkline_core::model::{Backend, Model, Normalize, Sandbox};
use trunkline_core::near::near;
use trunkline_core::parse::Format;
use trunkline_core::provider::{self, Delivery, NoPlaceholder, Permissions, Provider};
use trunkline_core::span::Span;
use trunkline_core::turn::OnDisconnect;
use trunkline_engine::Models;

use super::times::assumed;
use super::{ConfigError, Surroundings, agent_file, placeholders, plain_model, read};

/// The instructions a model reads when it names none.
pub(super) const AGENT_FILE: &str = "AGENTS.md";

/// Drivers that are output formats, for a command of the model's own.
const FORMATS: [&str; 3] = ["text", "json", "stream-json"];

/// The file as written: models in order, no name twice.
#[derive(Debug)]
struct ModelsFile(Vec<(String, Entry)>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    driver: String,
    repo_path: String,
    agent_file: Option<String>,
    #[serde(default)]
    worktree: bool,
    #[serde(default)]
    keep_worktree: bool,
    model: Option<String>,
    #[serde(default)]
    permissions: Permissions,
    sandbox: Option<Sandbox>,
    #[serde(default)]
    writable: Vec<String>,
    timeout: Option<Span>,
    startup_timeout: Option<Span>,
    idle_timeout: Option<Span>,
    tool_timeout: Option<Span>,
    compact_timeout: Option<Span>,
    max_turns: Option<u32>,
    max_tokens: Option<NonZeroU64>,
    #[serde(default)]
    allowed_tools: Vec<String>,
    system_prompt: Option<String>,
    #[serde(default)]
    fallback: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    normalize: Option<Normalization>,
    #[serde(default = "yes")]
    resume: bool,
    warm: Option<u32>,
    #[serde(default)]
    on_disconnect: OnDisconnect,
    #[serde(default)]
    policy: Policy,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Normalization {
    LastBlock,
}

/// What an agent may leave in the repository beside its task.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Policy {
    /// Whether the agent is told that it may, or may not, add helper scripts.
    create_helpers: Option<bool>,
    /// Whether the files a run adds are listed in a log, as part of its commit.
    commit_helpers: bool,
}

pub(super) fn load(
    path: &Path,
    providers: &BTreeMap<String, Arc<Provider>>,
    others: &Models,
    around: &Surroundings,
    warnings: &mut Vec<String>,
) -> Result<Vec<Model>, ConfigError> {
    let text = read(path)?;
    let file: ModelsFile = serde_json::from_str(&text).map_err(|error| ConfigError::json(path, &error))?;
    let names: Vec<&str> = file.0.iter().map(|(name, _)| name.as_str()).collect();
    for (name, entry) in &file.0 {
        let known = |other: &String| names.contains(&other.as_str()) || others.knows(other);
        if let Some(missing) = entry.fallback.iter().find(|other| *other == name || !known(other)) {
            let wrong =
                ConfigError::new(path, format!("model {name}: fallback to {missing:?}, which is not another model"));
            return Err(wrong.at(&text, &format!("\"{missing}\"")));
        }
    }
    if file.0.is_empty() {
        warnings.push(format!("{} names no model", path.display()));
    }
    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
    file.0
        .into_iter()
        .map(|(name, entry)| {
            let base = base_of(&name, &entry, providers, others).map_err(|(message, hint)| {
                let wrong = ConfigError::new(path, message).at(&text, &format!("\"{}\"", entry.driver));
                if hint.is_empty() { wrong } else { wrong.hint(hint) }
            })?;
            let doubts = entry
                .placeholders(&base)
                .map_err(|typo| ConfigError::new(path, format!("model {name}: {typo}")).at(&text, &typo.argument))?;
            warnings.extend(doubts.iter().chain(&entry.doubts()).map(|doubt| format!("model {name}: {doubt}")));
            warnings.extend(entry.assumed(&name));
            Ok(entry.resolve(name, base, &folder, around))
        })
        .collect()
}

/// What a driver stands for, as a model with nothing set: a recipe by its name or alias, a provider of the router, the
/// built-in agent, or a plain output format for the model's own command.
fn base_of(
    name: &str,
    entry: &Entry,
    providers: &BTreeMap<String, Arc<Provider>>,
    others: &Models,
) -> Result<Model, (String, String)> {
    let driver = &entry.driver;
    let plain = |provider: Arc<Provider>| plain_model(name, Backend::Program(provider), Path::new(""));
    if let Some(provider) = providers.values().find(|p| p.name == *driver || p.aliases.contains(driver)) {
        return Ok(plain(Arc::clone(provider)));
    }
    if let Some(routed) = others.router().providers.iter().find(|routed| routed.name == *driver) {
        return Ok(Model::clone(&routed.model));
    }
    if let Some(agent) = others.built_in().find(|model| model.name == *driver) {
        return Ok(Model::clone(agent));
    }
    let format = match driver.as_str() {
        "text" => Format::Text,
        "json" => Format::Json,
        "stream-json" => Format::StreamJson,
        _ => {
            let routed = others.router().providers.iter().map(|routed| routed.name.as_str());
            let built_in = others.built_in().map(|model| model.name.as_str());
            let known: Vec<&str> =
                providers.keys().map(String::as_str).chain(built_in).chain(routed).chain(FORMATS).collect();
            let close = near(driver, known.iter().copied());
            let hint = match close.first() {
                Some(close) => format!("did you mean \"{close}\"?"),
                None => format!("known drivers: {}", known.join(", ")),
            };
            return Err((format!("model {name}: unknown driver {driver:?}"), hint));
        }
    };
    match &entry.command {
        Some(command) => Ok(plain(Arc::new(provider::plain(name, command, &entry.args, format)))),
        None => Err((format!("model {name}: driver {driver:?} needs a command"), String::new())),
    }
}

impl Entry {
    /// Warnings about words in braces among the arguments. Those of an executable are its own, whatever stands in them.
    fn placeholders(&self, base: &Model) -> Result<Vec<String>, NoPlaceholder> {
        match base.backend.program() {
            Some(provider) if provider.prompt != Delivery::Request => {
                let added = if FORMATS.contains(&self.driver.as_str()) { &[][..] } else { &self.args };
                placeholders(provider.no_placeholders(), added)
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// Warnings about a policy for helpers that cannot be kept to.
    fn doubts(&self) -> Vec<String> {
        let logs = self.policy.commit_helpers && !self.worktree;
        let forbids = self.policy.create_helpers == Some(false) && !self.worktree;
        let logs =
            logs.then_some("policy.commitHelpers needs `worktree: true`: without one nothing is committed; ignored");
        let forbids = forbids.then_some(
            "policy.createHelpers: false is only told to the agent: what it adds is seen only with `worktree: true`",
        );
        logs.into_iter().chain(forbids).map(str::to_owned).collect()
    }

    /// The times that were taken for milliseconds.
    fn assumed(&self, name: &str) -> Vec<String> {
        let times = [
            ("timeout", self.timeout),
            ("startupTimeout", self.startup_timeout),
            ("idleTimeout", self.idle_timeout),
            ("toolTimeout", self.tool_timeout),
            ("compactTimeout", self.compact_timeout),
        ];
        let owner = format!("model {name}");
        times.into_iter().filter_map(|(key, time)| assumed(&owner, key, time?)).collect()
    }

    fn limits(&self) -> Asked {
        let written = |span: Option<Span>| span.map(|span| span.time);
        Asked {
            total: written(self.timeout),
            startup: written(self.startup_timeout),
            idle: written(self.idle_timeout),
            tool: written(self.tool_timeout),
            compact: written(self.compact_timeout),
        }
    }

    fn resolve(self, name: String, base: Model, folder: &Path, around: &Surroundings) -> Model {
        let asked = self.limits();
        let limits = match &base.backend {
            _ if asked == Asked::default() => base.limits,
            Backend::Program(provider) if provider.prompt != Delivery::Request => Limits::of(provider, asked),
            Backend::Program(_) | Backend::Api(_) => Limits::of_request(asked.total),
            Backend::Agent(_) => Limits::of_agent(asked),
        };
        let mut env = base.env;
        env.extend(self.env);
        Model {
            repo: around.path(&self.repo_path, folder),
            agent_file: agent_file(self.agent_file, base.backend.program().map(|provider| &**provider)),
            worktree: self.worktree,
            keep_worktree: self.keep_worktree,
            log_helpers: self.policy.commit_helpers,
            forbid_helpers: self.policy.create_helpers == Some(false),
            upstream: self.model.or(base.upstream),
            permissions: self.permissions,
            sandbox: self.sandbox.or(base.sandbox),
            writable: [base.writable, self.writable.iter().map(|path| around.path(path, folder)).collect()].concat(),
            readable: base.readable,
            limits,
            max_turns: self.max_turns,
            max_tokens: self.max_tokens.or(base.max_tokens),
            offered: base.offered,
            allowed_tools: self.allowed_tools,
            system_prompt: with_policy(self.system_prompt.or(base.system_prompt), &self.policy),
            fallback: self.fallback,
            env,
            command: self
                .command
                .map(|command| match command.contains('/') || command.starts_with('~') {
                    true => around.path(&command, folder).to_string_lossy().into_owned(),
                    false => command,
                })
                .or(base.command),
            // A plain provider's recipe is made of them.
            args: if FORMATS.contains(&self.driver.as_str()) { Vec::new() } else { [base.args, self.args].concat() },
            normalize: match self.normalize {
                Some(Normalization::LastBlock) => Normalize::LastBlock,
                None => Normalize::None,
            },
            resume: self.resume,
            on_disconnect: self.on_disconnect,
            warm: self.warm.or(base.warm),
            config: base.config,
            name,
            backend: base.backend,
        }
    }
}

/// The model's own instructions, and what its repository's policy adds to them.
fn with_policy(system_prompt: Option<String>, policy: &Policy) -> Option<String> {
    let rule = policy.create_helpers.map(|allowed| match allowed {
        true => "You may add helper scripts to this repository when they serve the task.",
        false => "Do not add helper scripts or other files to this repository that the task does not ask for.",
    });
    match (system_prompt, rule) {
        (Some(prompt), Some(rule)) => Some(format!("{prompt}\n\n{rule}")),
        (Some(prompt), None) => Some(prompt),
        (None, Some(rule)) => Some(rule.to_owned()),
        (None, None) => None,
    }
}

impl<'de> Deserialize<'de> for ModelsFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ModelsVisitor)
    }
}

struct ModelsVisitor;

impl<'de> Visitor<'de> for ModelsVisitor {
    type Value = ModelsFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of models by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ModelsFile, A::Error> {
        let mut models: Vec<(String, Entry)> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "$schema" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
                return Err(A::Error::custom(format!("{name:?} cannot be a model's name")));
            }
            if models.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format!("model {name:?} is there twice")));
            }
            models.push((name, map.next_value()?));
        }
        Ok(ModelsFile(models))
    }
}

#[cfg(test)]
mod tests;
