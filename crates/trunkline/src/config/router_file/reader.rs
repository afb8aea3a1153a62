//! Context for reading a `router.yaml`: its folder, the recipes, the environment, and the warnings so far.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use trunkline_core::provider::Provider;

use super::super::environment::Environment;

pub(super) struct RouterFileReader<'a> {
    /// Folder of the file. Paths in the file are relative to it.
    pub(super) folder: PathBuf,
    pub(super) recipes: &'a BTreeMap<String, Arc<Provider>>,
    pub(super) environment: &'a Environment,
    pub(super) warnings: Vec<String>,
}

impl RouterFileReader<'_> {
    /// Resolves a program. A path is relative to the file if it exists there, else to the current folder. A bare name is a
    /// file in the file's folder if it exists there, else it is looked up on the search path when it runs.
    pub(super) fn program(&self, written: &str) -> String {
        let next_to_file = self.environment.path(written, &self.folder);
        let here = self.environment.path(written, &self.environment.folder);
        let found = match written.contains('/') {
            _ if next_to_file.is_file() => next_to_file,
            true if here.is_file() => here,
            // It may be created later, then next to the file that names it.
            true => next_to_file,
            false => return written.to_owned(),
        };
        found.to_string_lossy().into_owned()
    }
}
