//! Where the configuration is: the folder asked for, or the first of the usual ones that has any.

use std::path::PathBuf;

use super::{ConfigError, Surroundings};

pub(super) const MODELS_FILE: &str = "models.json";
pub(super) const ROUTER_FILE: &str = "router.yaml";
pub(super) const PROVIDERS_FILE: &str = "providers.toml";

/// Every file that may be there; a change of one is a change of the configuration.
pub(crate) const FILES: [&str; 3] = [MODELS_FILE, ROUTER_FILE, PROVIDERS_FILE];

/// Where another router keeps its file, which is read as well.
const FOREIGN: &str = ".specular";

/// The folder the configuration is read from, if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    folder: Option<PathBuf>,
    /// Only `router.yaml` is read there.
    foreign: bool,
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
            return Ok(Self { folder: Some(folder), foreign: false });
        }
        let usual = [around.folder.clone(), around.folder.join(".trunkline"), around.config_home()];
        if let Some(folder) = usual.into_iter().find(has_any) {
            return Ok(Self { folder: Some(folder), foreign: false });
        }
        let foreign = Some(around.folder.join(FOREIGN)).filter(|folder| folder.join(ROUTER_FILE).is_file());
        Ok(Self { foreign: foreign.is_some(), folder: foreign })
    }

    pub(crate) fn folder(&self) -> Option<&PathBuf> {
        self.folder.as_ref()
    }

    /// The path of a configuration file that exists.
    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        let folder = self.folder.as_ref().filter(|_| !self.foreign || name == ROUTER_FILE);
        folder.map(|folder| folder.join(name)).filter(|path| path.is_file())
    }

    /// A notice about an unusual place of the configuration.
    pub(crate) fn notice(&self) -> Option<String> {
        let folder = self.folder.as_ref().filter(|_| self.foreign)?;
        let found = folder.join(ROUTER_FILE);
        Some(format!(
            "the configuration is {}, for lack of another: move it to .trunkline/{ROUTER_FILE} to keep it for this gateway",
            found.display()
        ))
    }
}
