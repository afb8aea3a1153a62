//! Other names for the fields of a provider, as the adapter protocol has them: `command`, `defaultArgs`, `outputFormat`,
//! `promptStyle`, `defaultModel`, `maxTokens`; each in both spellings.

use trunkline_core::provider;

use super::mistake::Mistake;
use super::yaml::{Entry, Node, Value};

/// The other name, and the one that is used here.
const ALIASES: [(&str, &str); 9] = [
    ("defaultArgs", "args"),
    ("default_args", "args"),
    ("outputFormat", "format"),
    ("output_format", "format"),
    ("promptStyle", "prompt"),
    ("prompt_style", "prompt"),
    ("defaultModel", "model"),
    ("default_model", "model"),
    ("maxTokens", "max_tokens"),
];

/// The name that is used here.
pub(super) fn canonical(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, name)| name)
}

/// A configuration with every field under the name that is used here. A field under two names is a mistake.
pub(super) fn renamed(config: &Node, owner: &str, kind: &str) -> Result<Node, Mistake> {
    let Value::Map(entries) = &config.value else { return Ok(config.clone()) };
    // The program of an agent is its recipe's; that of an executable is a path.
    let name = |key: &str| match (key, kind) {
        ("command", "agent") => "program".to_owned(),
        ("command", "cli") => "path".to_owned(),
        (key, "agent") => provider::current_key(canonical(key)).to_owned(),
        (key, _) => canonical(key).to_owned(),
    };
    let mut named: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries {
        let key = name(&entry.key);
        if let Some(first) = entries.iter().take(named.len()).find(|other| name(&other.key) == key) {
            let message = format!("{owner}: `{}` and `{}` are the same field", first.key, entry.key);
            return Err(Mistake::new(entry.at, message).hint(format!("keep one of them; it is `{key}` here")));
        }
        named.push(Entry { key, at: entry.at, node: entry.node.clone() });
    }
    Ok(Node { at: config.at, value: Value::Map(named) })
}
