//! Finds the folder with the configuration, and reads its files.

use std::fs;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::error::ConfigError;

pub(super) const MODELS_FILE: &str = "models.json";
pub(super) const ROUTER_FILE: &str = "router.yaml";
pub(super) const PROVIDERS_FILE: &str = "providers.toml";
pub(super) const CLIENTS_FILE: &str = "clients.toml";

/// Names of all configuration files.
pub(crate) const FILES: [&str; 4] = [MODELS_FILE, ROUTER_FILE, PROVIDERS_FILE, CLIENTS_FILE];

/// Folder of another router, whose `router.yaml` is read if there is no other configuration.
const FOREIGN_FOLDER: &str = ".specular";

const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The folder that the configuration is read from, if there is one.
#[derive(Debug, Clone)]
pub(crate) struct ConfigFolder {
    path: Option<PathBuf>,
    /// It belongs to another router: only `router.yaml` is read.
    foreign: bool,
}

impl ConfigFolder {
    /// Returns the folder given by `--config`, which must have a configuration file, or else the first of the default
    /// folders that has one.
    pub(crate) fn find(given: Option<PathBuf>, environment: &Environment) -> Result<Self, ConfigError> {
        let has_any = |folder: &PathBuf| FILES.iter().any(|name| folder.join(name).is_file());
        if let Some(folder) = given {
            let folder = environment.folder.join(folder);
            if !has_any(&folder) {
                return Err(ConfigError::new(&folder, format!("no {MODELS_FILE} and no {ROUTER_FILE} here"))
                    .hint("write one, or leave out --config to use the CLIs on your PATH"));
            }
            return Ok(Self { path: Some(folder), foreign: false });
        }
        let defaults = [environment.folder.clone(), environment.folder.join(".trunkline"), environment.config_home()];
        if let Some(folder) = defaults.into_iter().find(has_any) {
            return Ok(Self { path: Some(folder), foreign: false });
        }
        let foreign = environment.folder.join(FOREIGN_FOLDER);
        let path = Some(foreign).filter(|folder| folder.join(ROUTER_FILE).is_file());
        Ok(Self { foreign: path.is_some(), path })
    }

    pub(crate) fn path(&self) -> Option<&PathBuf> {
        self.path.as_ref()
    }

    /// Path of a configuration file, if it exists.
    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        let folder = self.path.as_ref().filter(|_| !self.foreign || name == ROUTER_FILE);
        folder.map(|folder| folder.join(name)).filter(|path| path.is_file())
    }

    /// A notice for the user, if the configuration is that of another router.
    pub(crate) fn notice(&self) -> Option<String> {
        let folder = self.path.as_ref().filter(|_| self.foreign)?;
        let found = folder.join(ROUTER_FILE);
        Some(format!(
            "using {}, as there is no other configuration: move it to .trunkline/{ROUTER_FILE} to keep it for this gateway",
            found.display()
        ))
    }
}

/// Text of a configuration file.
pub(super) fn read_file(path: &Path) -> Result<String, ConfigError> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > MAX_FILE_BYTES) {
        return Err(ConfigError::new(path, "larger than 4 MiB"));
    }
    fs::read_to_string(path).map_err(|error| ConfigError::new(path, error.to_string()))
}
