//! Installation of npm packages at the versions of a lock file, repeated only when the requested packages change.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::test::command;

/// Installs into `folder/node_modules`, unless the same `package.json` and lock file are installed there. Runs `then`
/// after an installation. Does not run the packages' own install scripts.
pub(crate) fn install(
    folder: &Path,
    [package, lock]: &[String; 2],
    verb: &[&str],
    then: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let stamp = folder.join("installed");
    let wanted = format!("{package}{lock}");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    eprintln!("installing npm packages into {}", folder.display());
    // The folder does not exist before the first installation.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    fs::write(folder.join("package.json"), package)?;
    if !lock.is_empty() {
        fs::write(folder.join("package-lock.json"), lock)?;
    }
    let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    let status = command("npm").args(verb).args(quiet).current_dir(folder).status().context("cannot start npm")?;
    if !status.success() {
        bail!("npm cannot install the packages of {}", folder.join("package.json").display());
    }
    then()?;
    fs::write(stamp, wanted)?;
    Ok(())
}

/// Reads `package.json` and `package-lock.json` of a folder.
pub(crate) fn pinned(sources: &Path) -> Result<[String; 2]> {
    let read = |name: &str| {
        let path = sources.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    Ok([read("package.json")?, read("package-lock.json")?])
}

/// The version of an installed package.
pub(crate) fn version(modules: &Path, package: &str) -> Result<String> {
    let path = modules.join(package).join("package.json");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let package: Value = serde_json::from_str(&text)?;
    Ok(package["version"].as_str().with_context(|| format!("{} has no version", path.display()))?.to_owned())
}
