//! `router.yaml`: providers in order of preference, and what the router does when one fails.
//!
//! The file is parsed into a tree (`yaml`), its variables are expanded (`expand`), and only then is it interpreted
//! (`provider_config`, `routing`). Nothing here starts a process or uses the network.

mod agent_config;
mod error;
mod expand;
mod field_aliases;
mod fields;
mod provider_config;
mod provider_types;
mod reader;
mod routing;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use trunkline_core::provider::{OfferedModel, Provider};
use trunkline_engine::router::RetryPolicy;

use super::aliases::WrittenAlias;
use super::discover::read_file;
use super::environment::Environment;
use super::error::ConfigError;
use super::model_options::ModelOptions;
use error::RouterFileError;
use fields::Fields;
pub(super) use provider_types::RouterProviderKind;
use reader::RouterFileReader;
use yaml::{YamlNode, YamlValue};

/// More than any hand-written file has; `models.json` may be larger, as it may be generated.
const MAX_BYTES: usize = 1024 * 1024;

const PROVIDER_KEYS: [&str; 6] = ["name", "type", "enabled", "priority", "config", "models"];

/// The file, validated.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RouterFile {
    /// The providers that are enabled, in the order of the file.
    pub(crate) providers: Vec<RouterProvider>,
    /// Names of the providers that are disabled, for error messages.
    pub(crate) disabled: Vec<String>,
    pub(crate) policy: RetryPolicy,
    /// Other names for models, in the order of the file.
    pub(crate) aliases: Vec<WrittenAlias>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RouterProvider {
    pub(crate) name: String,
    /// The highest is tried first.
    pub(crate) priority: i64,
    pub(crate) kind: RouterProviderKind,
    pub(crate) options: ModelOptions,
    /// Hints and their models, in the order of the file.
    pub(crate) models: Vec<(String, String)>,
    /// Models that the provider is known to have.
    pub(crate) offered: Vec<OfferedModel>,
}

pub(crate) fn load(
    path: &Path,
    providers: &BTreeMap<String, Arc<Provider>>,
    environment: &Environment,
    warnings: &mut Vec<String>,
) -> Result<RouterFile, ConfigError> {
    let text = read_file(path)?;
    if text.len() > MAX_BYTES {
        return Err(ConfigError::new(path, "larger than 1 MiB"));
    }
    let folder = environment.folder.join(path.parent().unwrap_or(Path::new("/")));
    let mut reader = RouterFileReader { folder, recipes: providers, environment, warnings: Vec::new() };
    let router = yaml::parse(&text).and_then(|file| reader.file(&file)).map_err(|error| error.in_file(path))?;
    warnings.extend(reader.warnings);
    if router.providers.is_empty() {
        warnings.push(match router.disabled.is_empty() {
            true => format!("{} names no provider", path.display()),
            false => format!("{} enables no provider", path.display()),
        });
    }
    Ok(router)
}

impl RouterFileReader<'_> {
    fn file(&mut self, file: &YamlNode) -> Result<RouterFile, RouterFileError> {
        let fields = Fields::of(file, "", &["providers", "routing", "aliases"], |_| None)?;
        let mut router = RouterFile::default();
        let mut names = BTreeSet::new();
        for item in list(&fields)? {
            let written = Fields::of(item, &label(item), &PROVIDER_KEYS, misplaced)?;
            let name = self.name(&written)?;
            if !names.insert(name.clone()) {
                return Err(RouterFileError::new(item.at, format!("provider {name} appears twice")));
            }
            // The configuration of a disabled provider is not read: its variables may not be set.
            match written.bool_or("enabled", true)? {
                true => router.providers.push(self.provider(name, &expand::expand(item, self.environment)?)?),
                false => router.disabled.push(name),
            }
        }
        if let Some(node) = fields.get("routing") {
            router.policy = routing::read(&expand::expand(node, self.environment)?)?;
        }
        router.aliases = self.aliases(&fields)?;
        Ok(router)
    }

    fn aliases(&self, file: &Fields<'_>) -> Result<Vec<WrittenAlias>, RouterFileError> {
        let read = |entry: &yaml::YamlEntry| {
            let node = expand::expand(&entry.node, self.environment)?;
            let target = file.text_of(&format!("aliases.{}", entry.key), &node)?;
            WrittenAlias::new(entry.key.clone(), target, entry.at).map_err(|why| file.error(entry.at, why))
        };
        file.map("aliases")?.iter().map(read).collect()
    }

    fn provider(&mut self, name: String, item: &YamlNode) -> Result<RouterProvider, RouterFileError> {
        let fields = Fields::of(item, &format!("provider {name}"), &PROVIDER_KEYS, misplaced)?;
        let (kind, options) = provider_config::read(&fields, &name, self)?;
        let (models, offered) = match fields.get("models") {
            Some(node @ YamlNode { value: YamlValue::List(_), .. }) => (Vec::new(), offered(&fields, node)?),
            _ => (models(&fields)?, Vec::new()),
        };
        let unnamed = options.model.is_none() && models.is_empty() && offered.is_empty();
        if matches!(kind, RouterProviderKind::Api { .. }) && unnamed {
            return Err(fields
                .error(item.at, "no model is named")
                .hint("an API needs one: add `model` to its config, or `models`"));
        }
        Ok(RouterProvider {
            priority: fields.integer("priority", i64::MIN..=i64::MAX)?.unwrap_or(0),
            kind,
            options,
            models,
            offered,
            name,
        })
    }

    /// Reads the name. Clients ask for `name`, `name/model` or `auto`, so a name must not be ambiguous.
    fn name(&self, fields: &Fields<'_>) -> Result<String, RouterFileError> {
        let node = fields.get("name").ok_or_else(|| fields.missing("name"))?;
        let node = expand::expand(node, self.environment)?;
        let name = fields.text_of("name", &node)?;
        let why = if name.trim().is_empty() {
            "it is empty"
        } else if name.contains('/') {
            "the part after a `/` is a model"
        } else if name.chars().any(char::is_control) {
            "it contains a control character"
        } else if name == "auto" || name.starts_with("auto:") {
            "`auto` lets the router choose"
        } else if name.len() > 200 {
            "it is longer than 200 bytes"
        } else {
            return Ok(name);
        };
        Err(RouterFileError::new(node.at, format!("{name:?} cannot be a provider's name")).hint(why))
    }
}

fn list<'n>(file: &Fields<'n>) -> Result<&'n [YamlNode], RouterFileError> {
    match file.get("providers") {
        None | Some(YamlNode { value: YamlValue::Nothing, .. }) => Ok(&[]),
        Some(YamlNode { value: YamlValue::List(items), .. }) => Ok(items),
        Some(node) => {
            Err(file.wrong_type("providers", node, "a list").hint("begin each provider with a dash: `- name: …`"))
        }
    }
}

/// A provider in messages, before its name is validated.
fn label(item: &YamlNode) -> String {
    let name = item.entries().iter().find(|entry| entry.key == "name").map(|entry| &entry.node.value);
    match name {
        Some(YamlValue::Text(name)) if !name.chars().any(char::is_control) => format!("provider {name}"),
        _ => "a provider".to_owned(),
    }
}

/// Reads `models`: a map from a hint, which clients ask for as `auto:<hint>`, to the provider's model for it.
fn models(provider: &Fields<'_>) -> Result<Vec<(String, String)>, RouterFileError> {
    let read = |entry: &yaml::YamlEntry| {
        let model = provider.text_of(&format!("models.{}", entry.key), &entry.node)?;
        match model.trim().is_empty() {
            true => Err(provider.error(entry.node.at, format!("`models.{}` is empty", entry.key))),
            false => Ok((entry.key.clone(), model)),
        }
    };
    provider.map("models")?.iter().map(read).collect()
}

/// `models` as a list: the models that the provider has, with their display names.
fn offered(provider: &Fields<'_>, node: &YamlNode) -> Result<Vec<OfferedModel>, RouterFileError> {
    Vec::deserialize(node.to_json()).map_err(|error| provider.error(node.at, format!("`models`: {error}")))
}

/// Advice on a key of `config` that was written one level too high.
fn misplaced(key: &str) -> Option<String> {
    provider_config::is_config_key(key).then(|| format!("`{key}` belongs under `config`"))
}

#[cfg(test)]
mod tests;
