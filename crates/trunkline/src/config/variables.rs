//! Expands `${VAR}` in a text of a configuration file.

use std::fmt;

use super::environment::Environment;

/// Reason why a text cannot be expanded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpansionError {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl ExpansionError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for ExpansionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hint {
            Some(hint) => write!(f, "{} ({hint})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Expands `${NAME}`, `${NAME:-default}`, and `$$` to a dollar sign. A dollar sign before anything else is kept.
pub(super) fn expand_text(text: &str, environment: &Environment) -> Result<String, ExpansionError> {
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
                .ok_or_else(|| ExpansionError::new("`${` without its `}`").hint("write $$ for a dollar sign"))?;
            expanded.push_str(&value_of(inside, environment)?);
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn value_of(inside: &str, environment: &Environment) -> Result<String, ExpansionError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if !is_variable(name) {
        return Err(ExpansionError::new(format!("{name:?} cannot be a variable's name"))
            .hint("write ${NAME} or ${NAME:-default}, and $$ for a dollar sign"));
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(ExpansionError::new(format!("the default of {name} contains another variable"))
            .hint("a default is plain text"));
    }
    let set = environment.env.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    match (set, default) {
        (Some(value), default) => match value.to_str() {
            // As in a shell, the default of `:-` also replaces an empty value.
            Some("") => Ok(default.unwrap_or_default().to_owned()),
            Some(value) => Ok(value.to_owned()),
            None => Err(ExpansionError::new(format!("the variable {name} is not UTF-8"))),
        },
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(ExpansionError::new(format!("the variable {name} is not set"))
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
        expand_text(text, &environment).map_err(|error| error.to_string())
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
            ("${NONE}", "the variable NONE is not set (set it, or write ${NONE:-default})"),
            ("${A", "`${` without its `}` (write $$ for a dollar sign)"),
            (
                "${a-b}",
                "\"a-b\" cannot be a variable's name (write ${NAME} or ${NAME:-default}, and $$ for a dollar sign)",
            ),
            ("${}", "\"\" cannot be a variable's name (write ${NAME} or ${NAME:-default}, and $$ for a dollar sign)"),
            ("${NONE:-${A}}", "the default of NONE contains another variable (a default is plain text)"),
        ] {
            assert_eq!(expanded(text).unwrap_err(), why, "{text}");
        }
    }
}
