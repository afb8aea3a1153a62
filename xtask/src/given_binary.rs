//! A trunkline binary that an option names: `--before` and `--binary`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::test::command;

/// Returns the absolute path of the binary, or an error that names what is wrong with it.
pub(crate) fn given_binary(option: &str, path: &Path) -> Result<PathBuf> {
    let given = format!("{option} {}", path.display());
    let found = fs::metadata(path).with_context(|| given.clone())?;
    if !found.is_file() {
        bail!("{given}: this is not a file; give the path of a trunkline binary");
    }
    if found.permissions().mode() & 0o111 == 0 {
        bail!("{given}: this file is not executable; give the path of a trunkline binary");
    }
    let path = path.canonicalize()?;
    let output = command(&path.to_string_lossy())
        .arg("--version")
        .output()
        .with_context(|| format!("{given}: cannot be started"))?;
    let version = String::from_utf8_lossy(&output.stdout);
    let version = version.lines().next().unwrap_or_default();
    if !output.status.success() || !version.starts_with("trunkline ") {
        bail!("{given}: this is not trunkline; with --version it printed {version:?}");
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &Path) -> String {
        format!("{:#}", given_binary("--before", path).unwrap_err())
    }

    #[test]
    fn error_names_the_path_and_what_is_wrong_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("notes.txt");
        fs::write(&text, "no program").unwrap();
        for (path, problem) in [
            (folder.path().join("missing"), "No such file or directory"),
            (folder.path().to_owned(), "this is not a file"),
            (text, "not executable"),
            ("/bin/sh".into(), "this is not trunkline"),
        ] {
            let error = error(&path);
            let path = format!("--before {}", path.display());
            assert!(error.starts_with(&path) && error.contains(problem), "{error}");
        }
    }
}
