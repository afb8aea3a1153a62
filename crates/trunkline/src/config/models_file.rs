//! `models.json`: the names that clients ask for, what each of them runs, aliases, and settings of the server.

mod sections;
mod written;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use trunkline_core::mcp_server::McpServer;
use trunkline_core::model::{Backend, Model};
use trunkline_core::near::near;
use trunkline_core::parse::Format;
use trunkline_core::provider::{self, Provider, UnknownPlaceholder};
use trunkline_core::turn::OnDisconnect;
use trunkline_core::url_pattern::UrlPattern;
use trunkline_core::vocabulary::Normalize;
use trunkline_core::vocabulary::PromptDelivery;
use trunkline_engine::Models;

use super::aliases::WrittenAlias;
use super::base_model::{default_agent_file, plain_model};
use super::discover::read_file;
use super::environment::Environment;
use super::error::ConfigError;
use super::mcp_servers::{self, WrongServer};
use super::model_options::ModelOptions;
use super::warnings::placeholder_warnings;
use sections::Section;
pub(crate) use sections::{ServerSettings, SideRequestSetting};
use written::{ModelMembers, WrittenModels};

/// Output formats that can be the driver of a model with its own command. The others belong to one CLI each.
const PLAIN_FORMATS: [Format; 3] = [Format::Text, Format::Json, Format::StreamJson];

fn plain_format(driver: &str) -> Option<Format> {
    PLAIN_FORMATS.into_iter().find(|format| format.name() == driver)
}

/// The file, validated. Targets of aliases are checked later, when all models are known.
#[derive(Debug, Default)]
pub(super) struct ModelsFile {
    pub(super) models: Vec<Model>,
    pub(super) aliases: Vec<WrittenAlias>,
    pub(super) server: ServerSettings,
}

impl ModelsFile {
    /// Whether the file has aliases or settings of the server, and no models: it leaves the choice of models to others.
    pub(super) fn has_only_sections(&self) -> bool {
        self.models.is_empty() && (!self.aliases.is_empty() || self.server != ServerSettings::default())
    }
}

/// A model of the file.
#[derive(Debug)]
struct ModelsFileEntry {
    driver: String,
    repo_path: String,
    command: Option<String>,
    args: Vec<String>,
    fallback: Vec<String>,
    normalize: Option<Normalization>,
    resume: bool,
    on_disconnect: OnDisconnect,
    join_repeats: bool,
    strict_parameters: bool,
    policy: HelperPolicy,
    mcp_servers: Vec<McpServer>,
    allow_mcp_servers: Vec<UrlPattern>,
    options: ModelOptions,
    /// Warnings about values that were read.
    warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Normalization {
    LastBlock,
}

/// Policy for files that an agent adds to the repository besides those of its task.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct HelperPolicy {
    /// Tells the agent that it may, or may not, add helper scripts.
    create_helpers: Option<bool>,
    /// Lists the files that a run adds in a log, as part of its commit.
    commit_helpers: bool,
}

pub(super) fn load(
    path: &Path,
    providers: &BTreeMap<String, Arc<Provider>>,
    others: &Models,
    environment: &Environment,
    warnings: &mut Vec<String>,
) -> Result<ModelsFile, ConfigError> {
    let text = read_file(path)?;
    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
    let written: WrittenModels<'_> = serde_json::from_str(&text).map_err(|error| ConfigError::json(path, &error))?;
    let mut file = ModelsFile::default();
    if let Some(raw) = written.aliases {
        file.aliases = Section { file: path, text: &text, name: sections::ALIASES, raw }.aliases()?;
    }
    if let Some(raw) = written.server {
        file.server = Section { file: path, text: &text, name: sections::SERVER, raw }.server()?;
    }
    let mut entries = Vec::with_capacity(written.models.len());
    for (name, written) in written.models {
        let members =
            ModelMembers { file: path, text: &text, name: &name, written: &written, warnings: RefCell::default() };
        let entry = ModelsFileEntry::read(&members, &folder, environment)?;
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
    if entries.is_empty() && !file.has_only_sections() {
        warnings.push(format!("{} names no model", path.display()));
    }
    let models = entries
        .into_iter()
        .map(|(name, entry)| {
            let base = base_of(&name, &entry, providers, others).map_err(|(message, hint)| {
                let wrong = ConfigError::new(path, message).at(&text, &format!("\"{}\"", entry.driver));
                if hint.is_empty() { wrong } else { wrong.hint(hint) }
            })?;
            let odd = entry
                .placeholder_warnings(&base)
                .map_err(|typo| ConfigError::new(path, format!("model {name}: {typo}")).at(&text, &typo.argument))?;
            warnings
                .extend(odd.iter().chain(&entry.policy_warnings()).map(|warning| format!("model {name}: {warning}")));
            warnings.extend(entry.warnings.iter().cloned());
            Ok(entry.resolve(name, base, &folder, environment))
        })
        .collect::<Result<_, ConfigError>>()?;
    Ok(ModelsFile { models, ..file })
}

/// The model that a driver names, before the entry's options: a recipe by name or alias, a provider of the router, the
/// built-in agent, or a plain output format for the model's own command.
fn base_of(
    name: &str,
    entry: &ModelsFileEntry,
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

impl ModelsFileEntry {
    fn read(members: &ModelMembers<'_, '_>, folder: &Path, environment: &Environment) -> Result<Self, ConfigError> {
        let wrong = |WrongServer { message, needle }| {
            ConfigError::new(members.file, format!("model {}: {message}", members.name)).at(members.text, &needle)
        };
        Ok(Self {
            driver: members.or_default("driver")?,
            repo_path: members.or_default("repo_path")?,
            command: members.nullable("command")?,
            args: members.or_default("args")?,
            fallback: members.or_default("fallback")?,
            normalize: members.nullable("normalize")?,
            resume: members.value("resume")?.unwrap_or(true),
            on_disconnect: members.or_default("on_disconnect")?,
            join_repeats: members.value("join_repeats")?.unwrap_or(true),
            strict_parameters: members.or_default("strict_parameters")?,
            policy: members.or_default("policy")?,
            mcp_servers: mcp_servers::resolve(members.or_default("mcp_servers")?, environment).map_err(wrong)?,
            allow_mcp_servers: mcp_servers::patterns(&members.or_default::<Vec<String>>("allow_mcp_servers")?)
                .map_err(wrong)?,
            options: ModelOptions::read(members, folder, environment)?,
            warnings: members.warnings.take(),
        })
    }

    /// Warnings about words in braces among the arguments. Arguments of an executable have no placeholders.
    fn placeholder_warnings(&self, base: &Model) -> Result<Vec<String>, UnknownPlaceholder> {
        match base.backend.program() {
            Some(provider) if provider.prompt != PromptDelivery::Request => {
                let added = if plain_format(&self.driver).is_some() { &[][..] } else { &self.args };
                placeholder_warnings(provider.no_placeholders(), added)
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// Warnings about a policy for helpers that cannot be enforced.
    fn policy_warnings(&self) -> Vec<String> {
        let logs = self.policy.commit_helpers && !self.options.worktree;
        let forbids = self.policy.create_helpers == Some(false) && !self.options.worktree;
        let logs =
            logs.then_some("policy.commitHelpers needs `worktree: true`: without one nothing is committed; ignored");
        let forbids = forbids.then_some(
            "policy.createHelpers: false is only an instruction to the agent: added files are detected only with `worktree: true`",
        );
        logs.into_iter().chain(forbids).map(str::to_owned).collect()
    }

    fn resolve(self, name: String, base: Model, folder: &Path, environment: &Environment) -> Model {
        let provider = base.backend.program().map(|provider| &**provider);
        let base = Model {
            repo: environment.path(&self.repo_path, folder),
            agent_file: default_agent_file(provider),
            log_helpers: self.policy.commit_helpers,
            forbid_helpers: self.policy.create_helpers == Some(false),
            fallback: self.fallback,
            command: self
                .command
                .map(|command| match command.contains('/') || command.starts_with('~') {
                    true => environment.path(&command, folder).to_string_lossy().into_owned(),
                    false => command,
                })
                .or(base.command),
            // With a plain format, the arguments are the recipe.
            args: if plain_format(&self.driver).is_some() { Vec::new() } else { [base.args, self.args].concat() },
            normalize: match self.normalize {
                Some(Normalization::LastBlock) => Normalize::LastBlock,
                None => Normalize::None,
            },
            resume: self.resume,
            on_disconnect: self.on_disconnect,
            join_repeats: self.join_repeats,
            strict_parameters: self.strict_parameters,
            mcp_servers: self.mcp_servers,
            allow_mcp_servers: self.allow_mcp_servers,
            name,
            ..base
        };
        let model = self.options.apply(base);
        Model { system_prompt: with_policy(model.system_prompt, &self.policy), ..model }
    }
}

/// The model's system prompt with the instructions of its policy.
fn with_policy(system_prompt: Option<String>, policy: &HelperPolicy) -> Option<String> {
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
