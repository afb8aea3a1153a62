//! `models.json`: names clients ask for, and what each of them runs.

mod written;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use trunkline_core::model::{Backend, Model, Normalize};
use trunkline_core::near::near;
use trunkline_core::parse::Format;
use trunkline_core::provider::{self, Delivery, NoPlaceholder, Provider};
use trunkline_core::turn::OnDisconnect;
use trunkline_engine::Models;

use super::model_options::ModelOptions;
use super::{ConfigError, Surroundings, agent_file, placeholders, plain_model, read};
use written::{ModelMembers, WrittenModels};

/// The instructions a model reads when it names none.
pub(super) const AGENT_FILE: &str = "AGENTS.md";

/// Output formats that can be named as a driver, for a command of the model's own. The others belong to one CLI each.
const PLAIN_FORMATS: [Format; 3] = [Format::Text, Format::Json, Format::StreamJson];

fn plain_format(driver: &str) -> Option<Format> {
    PLAIN_FORMATS.into_iter().find(|format| format.name() == driver)
}

/// A model of the file.
#[derive(Debug)]
struct Entry {
    driver: String,
    repo_path: String,
    command: Option<String>,
    args: Vec<String>,
    fallback: Vec<String>,
    normalize: Option<Normalization>,
    resume: bool,
    on_disconnect: OnDisconnect,
    policy: Policy,
    options: ModelOptions,
    /// Warnings about what was read.
    notes: Vec<String>,
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
    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
    let written: WrittenModels<'_> = serde_json::from_str(&text).map_err(|error| ConfigError::json(path, &error))?;
    let mut entries = Vec::with_capacity(written.0.len());
    for (name, written) in written.0 {
        let members =
            ModelMembers { file: path, text: &text, name: &name, written: &written, notes: RefCell::default() };
        let entry = Entry::read(&members, &folder, around)?;
        entries.push((name, entry));
    }
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    for (name, entry) in &entries {
        let known = |other: &String| names.contains(&other.as_str()) || others.knows(other);
        if let Some(missing) = entry.fallback.iter().find(|other| *other == name || !known(other)) {
            let wrong =
                ConfigError::new(path, format!("model {name}: fallback to {missing:?}, which is not another model"));
            return Err(wrong.at(&text, &format!("\"{missing}\"")));
        }
    }
    if entries.is_empty() {
        warnings.push(format!("{} names no model", path.display()));
    }
    entries
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
            warnings.extend(entry.notes.iter().cloned());
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
    let Some(format) = plain_format(driver) else {
        let routed = others.router().providers.iter().map(|routed| routed.name.as_str());
        let built_in = others.built_in().map(|model| model.name.as_str());
        let formats = PLAIN_FORMATS.map(Format::name);
        let known: Vec<&str> =
            providers.keys().map(String::as_str).chain(built_in).chain(routed).chain(formats).collect();
        let close = near(driver, known.iter().copied());
        let hint = match close.first() {
            Some(close) => format!("did you mean \"{close}\"?"),
            None => format!("known drivers: {}", known.join(", ")),
        };
        return Err((format!("model {name}: unknown driver {driver:?}"), hint));
    };
    match &entry.command {
        Some(command) => Ok(plain(Arc::new(provider::plain(name, command, &entry.args, format)))),
        None => Err((format!("model {name}: driver {driver:?} needs a command"), String::new())),
    }
}

impl Entry {
    fn read(members: &ModelMembers<'_, '_>, folder: &Path, around: &Surroundings) -> Result<Self, ConfigError> {
        Ok(Self {
            driver: members.or_default("driver")?,
            repo_path: members.or_default("repo_path")?,
            command: members.nullable("command")?,
            args: members.or_default("args")?,
            fallback: members.or_default("fallback")?,
            normalize: members.nullable("normalize")?,
            resume: members.value("resume")?.unwrap_or(true),
            on_disconnect: members.or_default("on_disconnect")?,
            policy: members.or_default("policy")?,
            options: ModelOptions::read(members, folder, around)?,
            notes: members.notes.take(),
        })
    }

    /// Warnings about words in braces among the arguments. Those of an executable are its own, whatever stands in them.
    fn placeholders(&self, base: &Model) -> Result<Vec<String>, NoPlaceholder> {
        match base.backend.program() {
            Some(provider) if provider.prompt != Delivery::Request => {
                let added = if plain_format(&self.driver).is_some() { &[][..] } else { &self.args };
                placeholders(provider.no_placeholders(), added)
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// Warnings about a policy for helpers that cannot be kept to.
    fn doubts(&self) -> Vec<String> {
        let logs = self.policy.commit_helpers && !self.options.worktree;
        let forbids = self.policy.create_helpers == Some(false) && !self.options.worktree;
        let logs =
            logs.then_some("policy.commitHelpers needs `worktree: true`: without one nothing is committed; ignored");
        let forbids = forbids.then_some(
            "policy.createHelpers: false is only told to the agent: what it adds is seen only with `worktree: true`",
        );
        logs.into_iter().chain(forbids).map(str::to_owned).collect()
    }

    fn resolve(self, name: String, base: Model, folder: &Path, around: &Surroundings) -> Model {
        let reader = base.backend.program().map(|provider| &**provider);
        let base = Model {
            repo: around.path(&self.repo_path, folder),
            agent_file: agent_file(reader),
            log_helpers: self.policy.commit_helpers,
            forbid_helpers: self.policy.create_helpers == Some(false),
            fallback: self.fallback,
            command: self
                .command
                .map(|command| match command.contains('/') || command.starts_with('~') {
                    true => around.path(&command, folder).to_string_lossy().into_owned(),
                    false => command,
                })
                .or(base.command),
            // A plain provider's recipe is made of them.
            args: if plain_format(&self.driver).is_some() { Vec::new() } else { [base.args, self.args].concat() },
            normalize: match self.normalize {
                Some(Normalization::LastBlock) => Normalize::LastBlock,
                None => Normalize::None,
            },
            resume: self.resume,
            on_disconnect: self.on_disconnect,
            name,
            ..base
        };
        let model = self.options.apply(base);
        Model { system_prompt: with_policy(model.system_prompt, &self.policy), ..model }
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

#[cfg(test)]
mod tests;
