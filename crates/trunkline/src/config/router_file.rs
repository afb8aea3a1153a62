//! `router.yaml`: providers in order of preference, and what the router does when one of them fails.
//!
//! The file is read as a tree first (`yaml`), its variables are filled in (`expand`), and only then is it given a
//! meaning. Nothing here starts anything or looks at the network.

mod agent;
mod aliases;
mod expand;
mod fields;
mod kind;
mod mistake;
mod routing;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use trunkline_core::provider::{Offered, Provider};
use trunkline_engine::router::Policy;

use super::model_options::ModelOptions;
use super::{ConfigError, Surroundings, read};
use fields::Fields;
pub(super) use kind::Kind;
use mistake::Mistake;
use yaml::{Node, Value};

/// Larger than any file a person writes; `models.json` may be larger, as it may be written by a program.
const LARGEST: usize = 1024 * 1024;

const PROVIDER_KEYS: [&str; 6] = ["name", "type", "enabled", "priority", "config", "models"];

/// What the file comes to.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Router {
    /// Those that are enabled, in the order of the file.
    pub(crate) providers: Vec<RouterProvider>,
    /// The names of the others, for an error that can say so.
    pub(crate) disabled: Vec<String>,
    pub(crate) policy: Policy,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RouterProvider {
    pub(crate) name: String,
    /// Higher goes first.
    pub(crate) priority: i64,
    pub(crate) kind: Kind,
    pub(crate) options: ModelOptions,
    /// Hint and model, in the order of the file.
    pub(crate) models: Vec<(String, String)>,
    /// The models it is known to have, with their names.
    pub(crate) offered: Vec<Offered>,
}

pub(crate) fn load(
    path: &Path,
    providers: &BTreeMap<String, Arc<Provider>>,
    around: &Surroundings,
    warnings: &mut Vec<String>,
) -> Result<Router, ConfigError> {
    let text = read(path)?;
    if text.len() > LARGEST {
        return Err(ConfigError::new(path, "larger than 1 MiB"));
    }
    let folder = around.folder.join(path.parent().unwrap_or(Path::new("/")));
    let mut reader = Reader { folder, recipes: providers, around, warnings: Vec::new() };
    let router = yaml::parse(&text).and_then(|file| reader.file(&file)).map_err(|mistake| mistake.in_file(path))?;
    warnings.extend(reader.warnings);
    if router.providers.is_empty() {
        warnings.push(match router.disabled.is_empty() {
            true => format!("{} names no provider", path.display()),
            false => format!("{} enables no provider", path.display()),
        });
    }
    Ok(router)
}

/// What a provider of the file is read against.
struct Reader<'a> {
    /// Where the file lies: paths in it are relative to that.
    folder: PathBuf,
    recipes: &'a BTreeMap<String, Arc<Provider>>,
    around: &'a Surroundings,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn file(&mut self, file: &Node) -> Result<Router, Mistake> {
        let fields = Fields::of(file, "", &["providers", "routing"], |_| None)?;
        let mut router = Router::default();
        let mut names = BTreeSet::new();
        for item in list(&fields)? {
            let written = Fields::of(item, &label(item), &PROVIDER_KEYS, misplaced)?;
            let name = self.name(&written)?;
            if !names.insert(name.clone()) {
                return Err(Mistake::new(item.at, format!("provider {name} is there twice")));
            }
            // What is switched off may need what is not there: its configuration is not looked at.
            match written.truth("enabled", true)? {
                true => router.providers.push(self.provider(name, &expand::expand(item, self.around)?)?),
                false => router.disabled.push(name),
            }
        }
        if let Some(node) = fields.get("routing") {
            router.policy = routing::read(&expand::expand(node, self.around)?)?;
        }
        Ok(router)
    }

    fn provider(&mut self, name: String, item: &Node) -> Result<RouterProvider, Mistake> {
        let fields = Fields::of(item, &format!("provider {name}"), &PROVIDER_KEYS, misplaced)?;
        let settings = kind::settings(&fields, &name, self)?;
        let (models, offered) = match fields.get("models") {
            Some(node @ Node { value: Value::List(_), .. }) => (Vec::new(), offered(&fields, node)?),
            _ => (models(&fields)?, Vec::new()),
        };
        let unnamed = settings.options.model.is_none() && models.is_empty() && offered.is_empty();
        if matches!(settings.kind, Kind::Api { .. }) && unnamed {
            return Err(fields
                .mistake(item.at, "no model is named")
                .hint("an API must be told which: add `model` to its config, or `models`"));
        }
        Ok(RouterProvider {
            priority: fields.integer("priority", i64::MIN..=i64::MAX)?.unwrap_or(0),
            kind: settings.kind,
            options: settings.options,
            models,
            offered,
            name,
        })
    }

    /// A client asks for `name` or `name/model`, or for `auto`: none may be taken for another.
    fn name(&self, fields: &Fields<'_>) -> Result<String, Mistake> {
        let node = fields.get("name").ok_or_else(|| fields.missing("name"))?;
        let node = expand::expand(node, self.around)?;
        let name = fields.text_of("name", &node)?;
        let why = if name.trim().is_empty() {
            "it is empty"
        } else if name.contains('/') {
            "what follows a `/` is a model"
        } else if name.chars().any(char::is_control) {
            "it holds a control character"
        } else if name == "auto" || name.starts_with("auto:") {
            "`auto` lets the router choose"
        } else if name.len() > 200 {
            "it is longer than 200 bytes"
        } else {
            return Ok(name);
        };
        Err(Mistake::new(node.at, format!("{name:?} cannot be a provider's name")).hint(why))
    }
}

fn list<'n>(file: &Fields<'n>) -> Result<&'n [Node], Mistake> {
    match file.get("providers") {
        None | Some(Node { value: Value::Nothing, .. }) => Ok(&[]),
        Some(Node { value: Value::List(items), .. }) => Ok(items),
        Some(node) => {
            Err(file.wanted("providers", node, "a list").hint("begin each provider with a dash: `- name: …`"))
        }
    }
}

/// A provider as messages call it, before anything about it is sure.
fn label(item: &Node) -> String {
    let name = item.entries().iter().find(|entry| entry.key == "name").map(|entry| &entry.node.value);
    match name {
        Some(Value::Text(name)) if !name.chars().any(char::is_control) => format!("provider {name}"),
        _ => "a provider".to_owned(),
    }
}

/// Any hint may be named, and every one of them needs a model.
fn models(provider: &Fields<'_>) -> Result<Vec<(String, String)>, Mistake> {
    let read = |entry: &yaml::Entry| {
        let model = provider.text_of(&format!("models.{}", entry.key), &entry.node)?;
        match model.trim().is_empty() {
            true => Err(provider.mistake(entry.node.at, format!("`models.{}` is empty", entry.key))),
            false => Ok((entry.key.clone(), model)),
        }
    };
    provider.map("models")?.iter().map(read).collect()
}

/// A list instead: the models it has, with the names people know them by.
fn offered(provider: &Fields<'_>, node: &Node) -> Result<Vec<Offered>, Mistake> {
    Vec::deserialize(node.to_json()).map_err(|error| provider.mistake(node.at, format!("`models`: {error}")))
}

/// A key of `config`, one level too high.
fn misplaced(key: &str) -> Option<String> {
    kind::is_config_key(key).then(|| format!("`{key}` belongs under `config`"))
}

#[cfg(test)]
mod tests;
