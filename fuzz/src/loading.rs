//! Loads a configuration file with arbitrary contents. The loader belongs to the binary, so it is included as source.

#[path = "../../crates/trunkline/src/config/mod.rs"]
#[expect(dead_code, unused_imports, reason = "only the loader is used here")]
mod config;

use std::path::PathBuf;
use std::sync::OnceLock;

use config::{Config, ConfigFolder, Environment};

/// Loads a configuration folder with one file, `name`, that contains these bytes.
pub(crate) fn check(name: &str, bytes: &[u8]) {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary folder can be created").keep());
    std::fs::write(folder.join(name), bytes).expect("a file can be written");
    let env = vec![("HOME".into(), "/nowhere".into()), ("KEY".into(), "k".into())];
    let environment = Environment { env, folder: folder.clone() };
    let found = ConfigFolder::find(Some(folder.clone()), &environment).expect("the file is there");
    match Config::load(&found, &environment) {
        Ok(config) => assert!(!config.models.names().is_empty(), "the built-in agent is missing"),
        Err(error) => assert!(error.to_string().contains(name), "the error does not name the file: {error}"),
    }
}
