//! The configuration's own loader, on a file that holds anything. It is the binary's, so it is taken from there as source.

#[path = "../../crates/trunkline/src/config/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the commands that use the rest are not here")]
mod config;

use std::path::PathBuf;
use std::sync::OnceLock;

use config::{Config, Place, Surroundings};

/// Loads a folder in which `name` holds these bytes.
pub(crate) fn check(name: &str, bytes: &[u8]) {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("there is room for a folder").keep());
    std::fs::write(folder.join(name), bytes).expect("there is room for a file");
    let env = vec![("HOME".into(), "/nowhere".into()), ("KEY".into(), "k".into())];
    let around = Surroundings { env, folder: folder.clone() };
    let place = Place::find(Some(folder.clone()), &around).expect("the file is there");
    match Config::load(&place, &around) {
        Ok(config) => assert!(!config.models.names().is_empty(), "the built-in agent is always there"),
        Err(error) => assert!(error.to_string().contains(name), "which file? {error}"),
    }
}
