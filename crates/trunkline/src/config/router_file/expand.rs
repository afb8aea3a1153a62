//! Expands `${VAR}` in values. It works on the parsed tree, so a value can never change the structure of the file.

use super::super::environment::Environment;
use super::error::{Position, RouterFileError};
use super::yaml::{YamlEntry, YamlNode, YamlValue};

/// The same tree with every text expanded. Keys are not expanded.
pub(super) fn expand(node: &YamlNode, environment: &Environment) -> Result<YamlNode, RouterFileError> {
    let value = match &node.value {
        YamlValue::Text(text) => YamlValue::Text(expand_text(text, node.at, environment)?),
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

/// Expands `${NAME}`, `${NAME:-default}`, and `$$` to a dollar sign. A dollar sign before anything else is kept.
fn expand_text(text: &str, at: Position, environment: &Environment) -> Result<String, RouterFileError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        expanded.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let (inside, after) = after
                .split_once('}')
                .ok_or_else(|| RouterFileError::new(at, "`${` without its `}`").hint("write $$ for a dollar sign"))?;
            expanded.push_str(&value_of(inside, at, environment)?);
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn value_of(inside: &str, at: Position, environment: &Environment) -> Result<String, RouterFileError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if !is_variable(name) {
        return Err(RouterFileError::new(at, format!("{name:?} cannot be a variable's name"))
            .hint("write ${NAME} or ${NAME:-default}, and $$ for a dollar sign"));
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(RouterFileError::new(at, format!("the default of {name} contains another variable"))
            .hint("a default is plain text"));
    }
    let set = environment.env.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    match (set, default) {
        (Some(value), default) => match value.to_str() {
            // As in a shell, the default of `:-` also replaces an empty value.
            Some("") => Ok(default.unwrap_or_default().to_owned()),
            Some(value) => Ok(value.to_owned()),
            None => Err(RouterFileError::new(at, format!("the variable {name} is not UTF-8"))),
        },
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(RouterFileError::new(at, format!("the variable {name} is not set"))
            .hint(format!("set it, or write ${{{name}:-default}}"))),
    }
}

/// Whether a shell accepts it as a variable's name.
pub(super) fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, String> {
        let env = [("A", "1"), ("EMPTY", ""), ("ODD", "x: [${A}]\n- $$")];
        let env = env.map(|(name, value)| (name.into(), value.into())).to_vec();
        let environment = Environment { env, folder: "/".into() };
        expand_text(text, (1, 1), &environment).map_err(|error| error.in_file("f".as_ref()).to_string())
    }

    #[test]
    fn expands_variables() {
        for (text, value) in [
            ("", ""),
            ("plain", "plain"),
            ("${A}", "1"),
            ("<${A}${A}>", "<11>"),
            ("${A:-2}", "1"),
            ("${NONE:-2}", "2"),
            ("${NONE:-}", ""),
            ("${EMPTY}", ""),
            ("${EMPTY:-2}", "2"),
            ("$$", "$"),
            ("$${A}", "${A}"),
            ("$$${A}", "$1"),
            ("$A costs 5$", "$A costs 5$"),
            ("${ODD}", "x: [${A}]\n- $$"),
        ] {
            assert_eq!(expanded(text).as_deref(), Ok(value), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_expansions() {
        for (text, why) in [
            ("${NONE}", "f:1:1: the variable NONE is not set (set it, or write ${NONE:-default})"),
            ("${A", "f:1:1: `${` without its `}` (write $$ for a dollar sign)"),
            (
                "${a-b}",
                "f:1:1: \"a-b\" cannot be a variable's name (write ${NAME} or ${NAME:-default}, and $$ for a dollar sign)",
            ),
            (
                "${}",
                "f:1:1: \"\" cannot be a variable's name (write ${NAME} or ${NAME:-default}, and $$ for a dollar sign)",
            ),
            ("${NONE:-${A}}", "f:1:1: the default of NONE contains another variable (a default is plain text)"),
        ] {
            assert_eq!(expanded(text).unwrap_err(), why, "{text}");
        }
    }
}
