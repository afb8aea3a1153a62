//! Where the configuration is: the folder asked for, or the first of the usual ones that has any.

use std::path::PathBuf;

use super::{ConfigError, Surroundings};

pub(super) const MODELS_FILE: &str = "models.json";
pub(super) const ROUTER_FILE: &str = "router.yaml";
pub(super) const PROVIDERS_FILE: &str = "providers.toml";

/// Every file that may be there; a change of one is a change of the configuration.
pub(crate) const FILES: [&str; 3] = [MODELS_FILE, ROUTER_FILE, PROVIDERS_FILE];

/// The folder the configuration is read from, if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    folder: Option<PathBuf>,
}

impl Place {
    /// `asked` is what `--config` says; it must have a file then.
    pub(crate) fn find(asked: Option<PathBuf>, around: &Surroundings) -> Result<Self, ConfigError> {
        let has_any = |folder: &PathBuf| FILES.iter().any(|name| folder.join(name).is_file());
        if let Some(folder) = asked {
            let folder = around.folder.join(folder);
            if !has_any(&folder) {
                return Err(ConfigError::new(&folder, format!("no {MODELS_FILE} and no {ROUTER_FILE} here"))
                    .hint("write one, or leave out --config to use the CLIs on your PATH"));
            }
            return Ok(Self { folder: Some(folder) });
        }
        let usual = [around.folder.clone(), around.folder.join(".trunkline"), around.config_home()];
        Ok(Self { folder: usual.into_iter().find(has_any) })
    }

    pub(crate) fn folder(&self) -> Option<&PathBuf> {
        self.folder.as_ref()
    }

    /// The path of a configuration file that exists.
    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file())
    }
}
