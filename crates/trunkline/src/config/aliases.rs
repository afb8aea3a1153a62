//! Aliases of `models.json` and `router.yaml`: other names for models, merged and checked against the models that exist.

use std::path::PathBuf;

use trunkline_core::near::near;
use trunkline_engine::Models;
use trunkline_engine::router::AliasRule;

use super::error::ConfigError;

/// Longest pattern or target, in bytes: as long as a name that a client may ask for.
const MAX_ALIAS_BYTES: usize = 256;

/// Number of models that an error message lists.
const MAX_LISTED_MODELS: usize = 20;

/// An alias as it is written in a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WrittenAlias {
    pub(super) pattern: String,
    pub(super) target: String,
    /// Line and column, counted from one.
    pub(super) position: (usize, usize),
}

/// The aliases of one file, in its order.
pub(super) struct AliasFile {
    pub(super) name: &'static str,
    pub(super) path: PathBuf,
    pub(super) aliases: Vec<WrittenAlias>,
}

impl WrittenAlias {
    /// Checks a pattern and its target. The error is the reason, without the place.
    pub(super) fn new(pattern: String, target: String, position: (usize, usize)) -> Result<Self, String> {
        for (role, text) in [("pattern", &pattern), ("target", &target)] {
            if text.is_empty() || text.len() > MAX_ALIAS_BYTES || text.chars().any(char::is_control) {
                let why = format!(
                    "its {role} is empty, longer than {MAX_ALIAS_BYTES} bytes, or contains a control character"
                );
                return Err(format!("alias {pattern:?}: {why}"));
            }
        }
        if target.contains('*') {
            return Err(format!("alias {pattern:?} leads to {target:?}: write the name of one model, without `*`"));
        }
        Ok(Self { pattern, target, position })
    }
}

/// Adds the aliases of all files, in order of precedence, to models that are otherwise complete.
pub(super) fn add(models: Models, files: &[AliasFile], warnings: &mut Vec<String>) -> Result<Models, ConfigError> {
    let all = || files.iter().flat_map(|file| file.aliases.iter().map(move |alias| (file, alias)));
    let rule = |(file, alias): (&AliasFile, &WrittenAlias)| AliasRule {
        pattern: alias.pattern.clone(),
        target: alias.target.clone(),
        file: file.name,
    };
    let names = models.names();
    let models = models.with_aliases(all().map(rule).collect()).map_err(|error| match all().nth(error.index()) {
        Some((file, alias)) => ConfigError::new(&file.path, error.to_string())
            .position(alias.position)
            .hint(known_models(&alias.target, &names)),
        None => ConfigError::elsewhere(error.to_string()),
    })?;
    warnings.extend(models.unreachable_aliases());
    Ok(models)
}

/// The models that exist, with those first that are similar to a name.
fn known_models(target: &str, names: &[String]) -> String {
    let close = near(target, names.iter().map(String::as_str));
    let listed = names.iter().take(MAX_LISTED_MODELS).cloned().collect::<Vec<_>>().join(", ");
    let more = if names.len() > MAX_LISTED_MODELS { ", …" } else { "" };
    match close.as_slice() {
        [] => format!("models: {listed}{more}"),
        close => format!("did you mean {}? models: {listed}{more}", close.join(" or ")),
    }
}
