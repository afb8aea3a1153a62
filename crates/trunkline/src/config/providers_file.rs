//! `providers.toml`: the user's own recipes, added to the built-in ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use trunkline_core::provider::{self, Provider, UnknownPlaceholder};

use super::discover::{ConfigFolder, PROVIDERS_FILE, read_file};
use super::error::ConfigError;
use super::times::millis_warning;
use super::warnings::placeholder_warnings;

/// Built-in recipes, with the user's own in place of those of the same name.
pub(crate) fn providers(
    folder: &ConfigFolder,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<String, Arc<Provider>>, ConfigError> {
    let mut providers = provider::built_in();
    if let Some(path) = folder.file(PROVIDERS_FILE) {
        let text = read_file(&path)?;
        let own = provider::parse(&text).map_err(|error| ConfigError::toml(&path, &text, &error))?;
        let renamed = provider::renamed_keys_of_file(&text);
        warnings.extend(renamed.iter().map(|(name, key)| format!("provider {name}: {key}")));
        for (name, provider) in &own {
            provider.check_live().map_err(|error| {
                let error_at = format!("[{name}.live]");
                let message = format!("provider {name}: {error}");
                ConfigError::new(&path, message).at(&text, &error_at).hint(error.hint())
            })?;
            let typo = |typo: UnknownPlaceholder| {
                ConfigError::new(&path, format!("provider {name}: {typo}")).at(&text, &typo.argument)
            };
            let odd = placeholder_warnings(provider.no_placeholders(), &[]).map_err(typo)?;
            warnings.extend(odd.iter().map(|warning| format!("provider {name}: {warning}")));
            let owner = format!("provider {name}");
            warnings.extend(provider.timeout.and_then(|time| millis_warning(&owner, "timeout", time)));
        }
        providers.extend(own);
    }
    Ok(providers.into_iter().map(|(name, provider)| (name, Arc::new(provider))).collect())
}
