//! `config` of a provider of type `agent`: a recipe, fields that replace its own, and how its runs are set up.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Map;
use serde_path_to_error::Segment;
use trunkline_core::near::did_you_mean;
use trunkline_core::provider::{self, Overlay, Provider, UnknownPlaceholder};
use trunkline_core::vocabulary::PromptDelivery;

use super::super::model_options;
use super::super::warnings::placeholder_warnings;
use super::error::RouterFileError;
use super::fields::Fields;
use super::provider_types::RouterProviderKind;
use super::reader::RouterFileReader;
use super::yaml::{YamlNode, YamlValue};

/// Keys of a run that are not model options. `args` is also a field of the recipe, as are some of the options.
const RUN_KEYS: [&str; 4] = ["recipe", "path", "args", "repo"];

pub(super) fn keys() -> Vec<&'static str> {
    let run: Vec<&str> = RUN_KEYS.into_iter().chain(model_options::NAMES).collect();
    let recipe = Overlay::FIELDS.into_iter().filter(|field| !run.contains(field));
    run.iter().copied().chain(recipe).collect()
}

pub(super) fn read(
    config: &Fields<'_>,
    name: &str,
    reader: &mut RouterFileReader<'_>,
) -> Result<RouterProviderKind, RouterFileError> {
    let more_args = match config.get("args") {
        Some(node) if is_groups(node) => Vec::new(),
        _ => config.texts("args")?,
    };
    let (provider, args) = recipe(config, name, more_args, reader)?;
    Ok(RouterProviderKind::Agent {
        provider,
        command: config.text("path")?.map(|path| reader.program(&path)),
        args,
        repo: match config.text("repo")? {
            Some(repo) => reader.environment.path(&repo, &reader.folder),
            None => reader.environment.folder.clone(),
        },
    })
}

/// The recipe with the fields written in the file, and the arguments to add to each run.
fn recipe(
    config: &Fields<'_>,
    name: &str,
    mut more_args: Vec<String>,
    reader: &mut RouterFileReader<'_>,
) -> Result<(Arc<Provider>, Vec<String>), RouterFileError> {
    let overlay = overlay(config, reader)?;
    let wanted = config.text("recipe")?;
    let wanted = wanted.as_deref().unwrap_or(name);
    let known = reader.recipes.values().find(|p| p.name == wanted || p.aliases.iter().any(|alias| alias == wanted));
    if known.is_some() {
        warn_placeholders(config, Vec::new(), &more_args, reader)?;
    }
    let (base, args) = match (known, &overlay.program, overlay.format) {
        (Some(recipe), ..) if overlay == Overlay::default() => return Ok((Arc::clone(recipe), more_args)),
        (Some(recipe), ..) => (Provider::clone(recipe), more_args),
        // A CLI without a recipe: its arguments are the recipe.
        (None, Some(program), Some(format)) => {
            if overlay.prompt == Some(PromptDelivery::Arg) && !more_args.iter().any(|arg| arg.contains("{prompt}")) {
                more_args.push("{prompt}".to_owned());
            }
            (provider::plain(name, program, &more_args, format), Vec::new())
        }
        (None, ..) => return Err(unknown(config, wanted, reader)),
    };
    let mut provider = overlay.over(base);
    name.clone_into(&mut provider.name);
    provider.aliases.clear();
    if provider.loses_the_prompt() {
        let at = config.get("prompt").or(config.get("args")).map_or(config.at(), |node| node.at);
        return Err(config.error(at, "no argument holds {prompt}").hint("add it to `args`, or write `prompt: stdin`"));
    }
    if let Err(error) = provider.check_live() {
        let at = config.get("format").or(config.get("live")).map_or(config.at(), |node| node.at);
        return Err(config.error(at, error.to_string()).hint(error.hint()));
    }
    warn_placeholders(config, provider.no_placeholders(), &[], reader)?;
    Ok((Arc::new(provider), args))
}

fn warn_placeholders(
    config: &Fields<'_>,
    of_recipe: Vec<UnknownPlaceholder>,
    added: &[String],
    reader: &mut RouterFileReader<'_>,
) -> Result<(), RouterFileError> {
    let at = config.get("args").map_or(config.at(), |node| node.at);
    let warnings = placeholder_warnings(of_recipe, added).map_err(|typo| config.error(at, typo.to_string()))?;
    reader.warnings.extend(warnings.iter().map(|warning| config.labelled(warning)));
    Ok(())
}

fn unknown(config: &Fields<'_>, wanted: &str, reader: &RouterFileReader<'_>) -> RouterFileError {
    let names = reader.recipes.keys().map(String::as_str);
    match config.get("recipe") {
        Some(node) => config.error(node.at, format!("unknown recipe {wanted:?}")).suggest(wanted, names),
        None => config.error(config.at(), format!("there is no recipe named {wanted:?}")).hint(format!(
            "add `recipe` ({}), or `program` and `format`, to its config",
            names.collect::<Vec<_>>().join(", ")
        )),
    }
}

/// Fields of the recipe among the keys. Each is read by itself, so that an error has its position.
fn overlay(config: &Fields<'_>, reader: &RouterFileReader<'_>) -> Result<Overlay, RouterFileError> {
    let mut written = Map::new();
    for field in Overlay::FIELDS {
        let Some(node) = config.get(field) else { continue };
        let value = match (field, &node.value) {
            // Options of the run, not fields of the recipe.
            ("env", _) => continue,
            ("permissions", value) if !matches!(value, YamlValue::Map(_)) => continue,
            ("args", _) if !is_groups(node) => continue,
            ("program", _) => match config.text("program")? {
                Some(program) => reader.program(&program).into(),
                None => continue,
            },
            (_, YamlValue::Nothing) => return Err(config.wrong_type(field, node, "something")),
            _ => node.to_json(),
        };
        let alone: Map<_, _> = [(field.to_owned(), value.clone())].into_iter().collect();
        if let Err(error) = serde_path_to_error::deserialize::<_, Overlay>(serde_json::Value::Object(alone)) {
            return Err(field_error(config, field, node, &error));
        }
        written.insert(field.to_owned(), value);
    }
    Overlay::deserialize(serde_json::Value::Object(written))
        .map_err(|error| config.error(config.at(), error.to_string()))
}

fn field_error(
    config: &Fields<'_>,
    field: &str,
    node: &YamlNode,
    source: &serde_path_to_error::Error<serde_json::Error>,
) -> RouterFileError {
    let message = source.inner().to_string();
    // The first step is the field itself.
    let mut at = node.at;
    let mut within = Some(node);
    for step in source.path().iter().skip(1) {
        let value = match (step, within.map(|node| &node.value)) {
            (Segment::Seq { index }, Some(YamlValue::List(items))) => items.get(*index),
            (Segment::Map { key }, Some(YamlValue::Map(entries))) => {
                let entry = entries.iter().find(|entry| entry.key == *key);
                at = entry.map_or(at, |entry| entry.at);
                entry.map(|entry| &entry.node)
            }
            _ => None,
        };
        within = value;
        at = within.filter(|_| !message.starts_with("unknown field")).map_or(at, |node| node.at);
    }
    let error = config.error(at, format!("`{field}`: {message}"));
    match did_you_mean(&message) {
        Some(hint) => error.hint(hint),
        None if message.contains("expected a string") => error.hint("put it in quotes"),
        None => error,
    }
}

/// Whether `args` is a list of groups, as in a recipe, rather than more arguments for one.
fn is_groups(node: &YamlNode) -> bool {
    let YamlValue::List(items) = &node.value else { return false };
    items.iter().any(|item| matches!(item.value, YamlValue::List(_)))
}
