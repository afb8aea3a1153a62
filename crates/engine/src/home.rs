//! A CLI's private home: its state under our state directory, the user's credentials linked in; and settings of ours.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use trunkline_core::failure::{Category, Failure};
use trunkline_core::provider::{Home, SettingsFile};

/// Where a provider's private home is.
pub(crate) fn folder(state: &Path, provider: &str) -> PathBuf {
    state.join("homes").join(provider)
}

/// Makes the home ready. `own` is the user's own folder for this CLI.
pub(crate) fn prepare(home: &Home, state: &Path, provider: &str, own: &Path) -> Result<(), Failure> {
    let folder = folder(state, provider);
    fill(home, &folder, own)
        .map_err(|error| Failure::new(Category::Configuration, format!("cannot prepare {}: {error}", folder.display())))
}

/// Where a provider's settings are.
pub(crate) fn settings_path(state: &Path, provider: &str) -> PathBuf {
    state.join("settings").join(provider).with_extension("json")
}

/// Writes a provider's settings, if they are not there already.
pub(crate) fn write_settings(file: &SettingsFile, state: &Path, provider: &str) -> Result<(), Failure> {
    let path = settings_path(state, provider);
    let write = || -> io::Result<()> {
        if fs::read_to_string(&path).is_ok_and(|text| text == file.content) {
            return Ok(());
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(state.join("settings"))?;
        let beside = state.join("settings").join(uuid::Uuid::new_v4().to_string());
        fs::write(&beside, &file.content)?;
        fs::rename(beside, &path)
    };
    write().map_err(|error| Failure::new(Category::Configuration, format!("cannot write {}: {error}", path.display())))
}

fn fill(home: &Home, folder: &Path, own: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    for name in &home.link {
        let (from, to) = (own.join(name), folder.join(name));
        if fs::read_link(&to).is_ok_and(|target| target == from) || !from.exists() {
            continue;
        }
        let beside = folder.join(format!(".{name}.{}", uuid::Uuid::new_v4()));
        symlink(&from, &beside)?;
        fs::rename(&beside, &to)?;
    }
    for name in &home.copy {
        let (from, to) = (own.join(name), folder.join(name));
        if is_newer(&from, &to) {
            let beside = folder.join(format!(".{name}.{}", uuid::Uuid::new_v4()));
            fs::copy(&from, &beside)?;
            fs::rename(&beside, &to)?;
        }
    }
    Ok(())
}

fn is_newer(from: &Path, to: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    match (time(from), time(to)) {
        (Ok(from), Ok(to)) => from > to,
        (Ok(_), Err(_)) => true,
        (Err(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use trunkline_core::provider::built_in;

    use super::*;

    #[test]
    fn credentials_are_linked_and_settings_copied() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("auth.json"), "{}").unwrap();
        fs::write(own.join("config.toml"), "model = \"a\"").unwrap();
        let codex = built_in()["codex"].home.clone().unwrap();
        for _ in 0..2 {
            prepare(&codex, folder.path(), "codex", &own).unwrap();
            let home = super::folder(folder.path(), "codex");
            assert_eq!(fs::read_link(home.join("auth.json")).unwrap(), own.join("auth.json"));
            // What a run writes there does not reach the user's file.
            fs::write(home.join("config.toml"), "model = \"a\"\n[projects]").unwrap();
            assert_eq!(fs::read_to_string(own.join("config.toml")).unwrap(), "model = \"a\"");
        }
    }

    #[test]
    fn settings_are_written_once() {
        let state = tempfile::tempdir().unwrap();
        let qwen = built_in()["qwen"].settings.clone().unwrap();
        let path = settings_path(state.path(), "qwen");
        write_settings(&qwen, state.path(), "qwen").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), qwen.content);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        write_settings(&qwen, state.path(), "qwen").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
    }

    #[test]
    fn a_user_without_the_cli_gets_an_empty_home() {
        let folder = tempfile::tempdir().unwrap();
        let codex = built_in()["codex"].home.clone().unwrap();
        prepare(&codex, folder.path(), "codex", &folder.path().join("missing")).unwrap();
        assert_eq!(fs::read_dir(super::folder(folder.path(), "codex")).unwrap().count(), 0);
    }
}
