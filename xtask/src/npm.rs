//! Packages of npm, at the versions of a lock file, installed again only when what is asked for has changed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::test::command;

/// Installs into `folder/node_modules` unless that was done from the same files; `then` is the rest of it. Nothing that a
/// package brings is run.
pub(crate) fn install(
    folder: &Path,
    [package, lock]: &[String; 2],
    verb: &[&str],
    then: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let stamp = folder.join("installed");
    let wanted = format!("{package}{lock}");
    if fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
        return Ok(());
    }
    eprintln!("installing packages of npm into {}", folder.display());
    let _not_there_yet = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    fs::write(folder.join("package.json"), package)?;
    if !lock.is_empty() {
        fs::write(folder.join("package-lock.json"), lock)?;
    }
    let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    let status = command("npm").args(verb).args(quiet).current_dir(folder).status().context("cannot start npm")?;
    if !status.success() {
        bail!("npm cannot install what {} asks for", folder.join("package.json").display());
    }
    then()?;
    fs::write(stamp, wanted)?;
    Ok(())
}

/// What a folder of sources pins: its `package.json` and the lock file beside it.
pub(crate) fn pinned(sources: &Path) -> Result<[String; 2]> {
    let read = |name: &str| {
        let path = sources.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    Ok([read("package.json")?, read("package-lock.json")?])
}
