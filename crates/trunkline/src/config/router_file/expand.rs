//! Expands `${VAR}` in values. It works on the parsed tree, so a value can never change the structure of the file.

use super::super::environment::Environment;
use super::super::variables::{ExpansionError, expand_text};
use super::error::{Position, RouterFileError};
use super::yaml::{YamlEntry, YamlNode, YamlValue};

/// The same tree with every text expanded. Keys are not expanded.
pub(super) fn expand(node: &YamlNode, environment: &Environment) -> Result<YamlNode, RouterFileError> {
    let value = match &node.value {
        YamlValue::Text(text) => YamlValue::Text(at_position(expand_text(text, environment), node.at)?),
        YamlValue::List(items) => {
            YamlValue::List(items.iter().map(|item| expand(item, environment)).collect::<Result<_, RouterFileError>>()?)
        }
        YamlValue::Map(entries) => {
            let expanded = entries.iter().map(|YamlEntry { key, at, node }| {
                Ok(YamlEntry { key: key.clone(), at: *at, node: expand(node, environment)? })
            });
            YamlValue::Map(expanded.collect::<Result<_, RouterFileError>>()?)
        }
        plain @ (YamlValue::Nothing | YamlValue::Bool(_) | YamlValue::Number { .. }) => plain.clone(),
    };
    Ok(YamlNode { at: node.at, value })
}

fn at_position(expanded: Result<String, ExpansionError>, at: Position) -> Result<String, RouterFileError> {
    expanded.map_err(|ExpansionError { message, hint }| {
        let wrong = RouterFileError::new(at, message);
        match hint {
            Some(hint) => wrong.hint(hint),
            None => wrong,
        }
    })
}
