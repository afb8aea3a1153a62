//! Installation of Python packages into a virtual environment, repeated only when the requested packages change.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::test::command;

/// Installs the packages of a requirements file into a virtual environment at `folder`, unless the same file is installed
/// there. Returns its Python.
pub(crate) fn install(folder: &Path, requirements: &Path) -> Result<PathBuf> {
    let (python, stamp) = (folder.join("bin/python"), folder.join("installed"));
    let wanted = fs::read_to_string(requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    eprintln!("installing Python packages into {}", folder.display());
    let created = command("python3").args(["-m", "venv", "--clear"]).arg(folder).status()?.success();
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    let program = python.to_str().context("the target folder's name is not UTF-8")?;
    if !created || !command(program).args(pip).arg(requirements).status()?.success() {
        bail!("pip cannot install the packages of {}", requirements.display());
    }
    fs::write(stamp, wanted)?;
    Ok(python)
}
