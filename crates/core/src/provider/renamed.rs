//! Renamed keys of recipes. The old names work for one more release, with a warning that names the new one.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Key of a recipe under its old and its new name.
#[derive(Debug, PartialEq, Eq)]
pub struct RenamedKey {
    /// Table of the recipe that holds the key; none for the recipe itself.
    table: Option<&'static str>,
    old: &'static str,
    new: &'static str,
}

static RENAMED_KEYS: [RenamedKey; 7] = [
    RenamedKey { table: None, old: "litters", new: "private_tmp" },
    RenamedKey { table: None, old: "compiles", new: "node_compile_cache" },
    RenamedKey { table: None, old: "confines", new: "own_sandbox" },
    RenamedKey { table: None, old: "quiet", new: "buffers_output" },
    RenamedKey { table: None, old: "inert", new: "escape" },
    RenamedKey { table: Some("live"), old: "inert", new: "escape" },
    RenamedKey { table: Some("live"), old: "asked", new: "opt_in" },
];

impl fmt::Display for RenamedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table.map(|table| format!("{table}.")).unwrap_or_default();
        let Self { old, new, .. } = self;
        write!(f, "`{table}{old}` is now called `{table}{new}`; the old name stops working in the next release")
    }
}

/// Current name of a key of a recipe.
#[must_use]
pub fn current_key(key: &str) -> &str {
    let renamed = RENAMED_KEYS.iter().find(|renamed| renamed.table.is_none() && renamed.old == key);
    renamed.map_or(key, |renamed| renamed.new)
}

/// Keys of a recipe that are written under their old name.
pub fn renamed_keys(recipe: &Value) -> impl Iterator<Item = &'static RenamedKey> {
    RENAMED_KEYS.iter().filter(move |renamed| {
        let table = renamed.table.map_or(Some(recipe), |table| recipe.get(table));
        table.is_some_and(|table| table.get(renamed.old).is_some())
    })
}

/// Keys in a file of providers that are written under their old name, with the provider. Empty if the file is not valid.
#[must_use]
pub fn renamed_keys_of_file(toml: &str) -> Vec<(String, &'static RenamedKey)> {
    let recipes: BTreeMap<String, Value> = toml::from_str(toml).unwrap_or_default();
    let mut found = Vec::new();
    for (name, recipe) in &recipes {
        found.extend(renamed_keys(recipe).map(|key| (name.clone(), key)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{BUILT_IN, Overlay, parse};
    use super::*;

    /// A recipe with these keys.
    fn recipe(renamed: &RenamedKey, keys: &[&str]) -> String {
        let value = if renamed.new == "escape" { "{ slash = true }" } else { "true" };
        let table = if renamed.table.is_some() { "[mine.live]\nprotocol = 'acp'\nargs = []\n" } else { "" };
        let keys: String = keys.iter().map(|key| format!("{key} = {value}\n")).collect();
        format!("[mine]\nprogram = 'x'\nformat = 'stream-json'\nargs = []\n{table}{keys}")
    }

    #[test]
    fn an_old_key_means_the_same_as_the_new_one_and_is_reported() {
        for renamed in &RENAMED_KEYS {
            let [old, new] = [renamed.old, renamed.new].map(|key| recipe(renamed, &[key]));
            assert_eq!(parse(&old).unwrap(), parse(&new).unwrap(), "{renamed}");
            assert_ne!(parse(&new).unwrap(), parse(&recipe(renamed, &[])).unwrap(), "{renamed}");
            assert_eq!(renamed_keys_of_file(&old), [("mine".to_owned(), renamed)]);
            assert_eq!(renamed_keys_of_file(&new), []);
        }
    }

    #[test]
    fn the_warning_names_both_keys() {
        let warnings = RENAMED_KEYS.each_ref().map(|renamed| {
            let text = renamed.to_string();
            let (names, rest) = text.split_once("; ").unwrap();
            assert_eq!(rest, "the old name stops working in the next release");
            names.to_owned()
        });
        assert_eq!(
            warnings,
            [
                "`litters` is now called `private_tmp`",
                "`compiles` is now called `node_compile_cache`",
                "`confines` is now called `own_sandbox`",
                "`quiet` is now called `buffers_output`",
                "`inert` is now called `escape`",
                "`live.inert` is now called `live.escape`",
                "`live.asked` is now called `live.opt_in`",
            ]
        );
    }

    #[test]
    fn a_key_under_both_names_is_an_error() {
        for renamed in &RENAMED_KEYS {
            let error = parse(&recipe(renamed, &[renamed.old, renamed.new])).unwrap_err().to_string();
            assert!(error.contains(&format!("duplicate field `{}`", renamed.new)), "{error}");
        }
    }

    #[test]
    fn only_current_names_are_used_by_us() {
        assert_eq!(renamed_keys_of_file(BUILT_IN), []);
        for field in Overlay::FIELDS {
            assert_eq!(current_key(field), field);
        }
        assert_eq!(current_key("litters"), "private_tmp");
        assert_eq!(current_key("asked"), "asked", "it is a key of `live` only");
    }
}
