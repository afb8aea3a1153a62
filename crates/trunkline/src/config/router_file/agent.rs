//! A provider of type `agent`: a built-in recipe, perhaps with fields of its own, and how each run of it is set up.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Map;
use serde_path_to_error::Segment;
use trunkline_core::near::did_you_mean;
use trunkline_core::provider::{self, Delivery, NoPlaceholder, Overlay, Provider};

use super::super::model_options;
use super::super::placeholders;
use super::Reader;
use super::fields::Fields;
use super::kind::Kind;
use super::mistake::Mistake;
use super::yaml::{Node, Value};

/// Keys of a run that are not among a model's options. `args` is a field of the recipe as well, like some of the options.
const RUN_KEYS: [&str; 4] = ["recipe", "path", "args", "repo"];

pub(super) fn keys() -> Vec<&'static str> {
    let run: Vec<&str> = RUN_KEYS.into_iter().chain(model_options::NAMES).collect();
    let recipe = Overlay::FIELDS.into_iter().filter(|field| !run.contains(field));
    run.iter().copied().chain(recipe).collect()
}

pub(super) fn read(config: &Fields<'_>, name: &str, reader: &mut Reader<'_>) -> Result<Kind, Mistake> {
    let more_args = match config.get("args") {
        Some(node) if is_groups(node) => Vec::new(),
        _ => config.texts("args")?,
    };
    let (provider, args) = recipe(config, name, more_args, reader)?;
    Ok(Kind::Agent {
        provider,
        command: config.text("path")?.map(|path| reader.program(&path)),
        args,
        repo: match config.text("repo")? {
            Some(repo) => reader.around.path(&repo, &reader.folder),
            None => reader.around.folder.clone(),
        },
    })
}

/// The recipe with what is written over it, and the arguments that are left for the run.
fn recipe(
    config: &Fields<'_>,
    name: &str,
    mut more_args: Vec<String>,
    reader: &mut Reader<'_>,
) -> Result<(Arc<Provider>, Vec<String>), Mistake> {
    let overlay = overlay(config, reader)?;
    let wanted = config.text("recipe")?;
    let wanted = wanted.as_deref().unwrap_or(name);
    let known = reader.recipes.values().find(|p| p.name == wanted || p.aliases.iter().any(|alias| alias == wanted));
    if known.is_some() {
        doubt_placeholders(config, Vec::new(), &more_args, reader)?;
    }
    let (base, args) = match (known, &overlay.program, overlay.format) {
        (Some(recipe), ..) if overlay == Overlay::default() => return Ok((Arc::clone(recipe), more_args)),
        (Some(recipe), ..) => (Provider::clone(recipe), more_args),
        // A CLI of the user's own: its arguments are all there is of a recipe.
        (None, Some(program), Some(format)) => {
            if overlay.prompt == Some(Delivery::Arg) && !more_args.iter().any(|arg| arg.contains("{prompt}")) {
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
        return Err(config
            .mistake(at, "no argument holds {prompt}")
            .hint("add it to `args`, or write `prompt: stdin`"));
    }
    if let Err(error) = provider.check_live() {
        let at = config.get("format").or(config.get("live")).map_or(config.at(), |node| node.at);
        return Err(config.mistake(at, error.to_string()).hint(error.hint()));
    }
    doubt_placeholders(config, provider.no_placeholders(), &[], reader)?;
    Ok((Arc::new(provider), args))
}

fn doubt_placeholders(
    config: &Fields<'_>,
    of_recipe: Vec<NoPlaceholder>,
    added: &[String],
    reader: &mut Reader<'_>,
) -> Result<(), Mistake> {
    let at = config.get("args").map_or(config.at(), |node| node.at);
    let doubts = placeholders(of_recipe, added).map_err(|typo| config.mistake(at, typo.to_string()))?;
    reader.warnings.extend(doubts.iter().map(|doubt| config.said(doubt)));
    Ok(())
}

fn unknown(config: &Fields<'_>, wanted: &str, reader: &Reader<'_>) -> Mistake {
    let names = reader.recipes.keys().map(String::as_str);
    match config.get("recipe") {
        Some(node) => config.mistake(node.at, format!("unknown recipe {wanted:?}")).suggest(wanted, names),
        None => config.mistake(config.at(), format!("there is no recipe of the name {wanted:?}")).hint(format!(
            "add `recipe` ({}), or `program` and `format`, to its config",
            names.collect::<Vec<_>>().join(", ")
        )),
    }
}

/// The recipe's own fields among the keys. Each is read by itself, so that a refusal can point at it.
fn overlay(config: &Fields<'_>, reader: &Reader<'_>) -> Result<Overlay, Mistake> {
    let mut written = Map::new();
    for field in Overlay::FIELDS {
        let Some(node) = config.get(field) else { continue };
        let value = match (field, &node.value) {
            // Options of the run, not fields of the recipe.
            ("env", _) => continue,
            ("permissions", value) if !matches!(value, Value::Map(_)) => continue,
            ("args", _) if !is_groups(node) => continue,
            ("program", _) => match config.text("program")? {
                Some(program) => reader.program(&program).into(),
                None => continue,
            },
            (_, Value::Nothing) => return Err(config.wanted(field, node, "something")),
            _ => node.to_json(),
        };
        let alone: Map<_, _> = [(field.to_owned(), value.clone())].into_iter().collect();
        if let Err(error) = serde_path_to_error::deserialize::<_, Overlay>(serde_json::Value::Object(alone)) {
            return Err(refused(config, field, node, &error));
        }
        written.insert(field.to_owned(), value);
    }
    Overlay::deserialize(serde_json::Value::Object(written))
        .map_err(|error| config.mistake(config.at(), error.to_string()))
}

fn refused(
    config: &Fields<'_>,
    field: &str,
    node: &Node,
    error: &serde_path_to_error::Error<serde_json::Error>,
) -> Mistake {
    let message = error.inner().to_string();
    // The first step is the field itself.
    let mut at = node.at;
    let mut within = Some(node);
    for step in error.path().iter().skip(1) {
        let value = match (step, within.map(|node| &node.value)) {
            (Segment::Seq { index }, Some(Value::List(items))) => items.get(*index),
            (Segment::Map { key }, Some(Value::Map(entries))) => {
                let entry = entries.iter().find(|entry| entry.key == *key);
                at = entry.map_or(at, |entry| entry.at);
                entry.map(|entry| &entry.node)
            }
            _ => None,
        };
        within = value;
        at = within.filter(|_| !message.starts_with("unknown field")).map_or(at, |node| node.at);
    }
    let mistake = config.mistake(at, format!("`{field}`: {message}"));
    match did_you_mean(&message) {
        Some(hint) => mistake.hint(hint),
        None if message.contains("expected a string") => mistake.hint("put it in quotes"),
        None => mistake,
    }
}

/// Whether `args` are a recipe's groups rather than more arguments for one.
fn is_groups(node: &Node) -> bool {
    let Value::List(items) = &node.value else { return false };
    items.iter().any(|item| matches!(item.value, Value::List(_)))
}
