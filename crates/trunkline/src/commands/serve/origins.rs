//! Origins of web pages that may use the API: those of the arguments, and those of the configuration, which can change.

use trunkline_server::auth::{AllowedOrigin, AllowedOrigins, Keys, check_origins};

use crate::config::{Config, ConfigError};

pub(super) struct OriginSettings {
    /// Origins of the arguments and the environment.
    given: Vec<AllowedOrigin>,
    keys: Keys,
    /// All origins, shared with the server.
    pub(super) allowed: AllowedOrigins,
}

impl OriginSettings {
    /// Combines the arguments with the configuration. Fails if an origin is allowed and there are no keys.
    pub(super) fn new(given: Vec<AllowedOrigin>, keys: Keys, config: &Config) -> Result<Self, ConfigError> {
        let settings = Self { given, keys, allowed: AllowedOrigins::default() };
        settings.reload(config)?;
        Ok(settings)
    }

    /// Applies the origins of a configuration, or leaves everything as it is if that fails.
    pub(super) fn reload(&self, config: &Config) -> Result<(), ConfigError> {
        let mut origins = self.given.clone();
        origins.extend(config.server.allow_origins.iter().cloned());
        check_origins(&origins, &self.keys).map_err(|error| ConfigError::elsewhere(error.to_string()))?;
        let listed = origins.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if self.allowed.replace(origins) {
            let listed = if listed.is_empty() { "none" } else { &listed };
            tracing::info!("web pages of other origins that may use the API with a key: {listed}");
        }
        Ok(())
    }
}
