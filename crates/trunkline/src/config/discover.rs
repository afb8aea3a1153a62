//! Where the configuration is: the folder asked for, or the first of the usual ones that has any.

use std::path::PathBuf;

use super::{ConfigError, Surroundings};

pub(crate) const MODELS_FILE: &str = "models.json";
pub(crate) const PROVIDERS_FILE: &str = "providers.toml";

/// The folder the configuration is read from, if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    folder: Option<PathBuf>,
}

impl Place {
    /// `asked` is what `--config` says; it must have a file then.
    pub(crate) fn find(asked: Option<PathBuf>, around: &Surroundings) -> Result<Self, ConfigError> {
        let has_any = |folder: &PathBuf| [MODELS_FILE, PROVIDERS_FILE].iter().any(|name| folder.join(name).is_file());
        if let Some(folder) = asked {
            let folder = around.folder.join(folder);
            if !has_any(&folder) {
                return Err(ConfigError::new(&folder, format!("no {MODELS_FILE} here"))
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
