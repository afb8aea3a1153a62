//! Other names for the fields of a provider, from the adapter protocol: `command`, `defaultArgs`, `outputFormat`,
//! `promptStyle`, `defaultModel`, `maxTokens`; each in camelCase and in snake_case.

use trunkline_core::provider::current_key;

use super::error::RouterFileError;
use super::provider_types::RouterProviderType;
use super::yaml::{YamlEntry, YamlNode, YamlValue};

/// Alias and canonical name.
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

/// Canonical name of a key.
pub(super) fn canonical(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, name)| name)
}

/// The configuration with canonical names. A field that is written under two names is an error.
pub(super) fn renamed(config: &YamlNode, owner: &str, kind: RouterProviderType) -> Result<YamlNode, RouterFileError> {
    let YamlValue::Map(entries) = &config.value else { return Ok(config.clone()) };
    // For an agent `command` is the recipe's program, for an executable its path.
    let name = |key: &str| match (key, kind) {
        ("command", RouterProviderType::Agent) => "program".to_owned(),
        ("command", RouterProviderType::Cli) => "path".to_owned(),
        (key, RouterProviderType::Agent) => current_key(canonical(key)).to_owned(),
        (key, _) => canonical(key).to_owned(),
    };
    let mut named: Vec<YamlEntry> = Vec::with_capacity(entries.len());
    for entry in entries {
        let key = name(&entry.key);
        if let Some(first) = entries.iter().take(named.len()).find(|other| name(&other.key) == key) {
            let message = format!("{owner}: `{}` and `{}` are the same field", first.key, entry.key);
            return Err(RouterFileError::new(entry.at, message).hint(format!("keep one of them; it is `{key}` here")));
        }
        named.push(YamlEntry { key, at: entry.at, node: entry.node.clone() });
    }
    Ok(YamlNode { at: config.at, value: YamlValue::Map(named) })
}
