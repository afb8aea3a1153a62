//! Installation of the clients at their pinned versions, in `target/clients`. Repeated only when the versions change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::row::{ClientRow, Packages};
use crate::conformance::ConformanceTools;
use crate::test::command;
use crate::{npm, pip};

/// The installed sets of packages.
pub(super) struct InstalledClients {
    sets: BTreeMap<Packages, InstalledSet>,
    /// Folder with the real CLIs behind the gateway, if a case needs them.
    real_clis: Option<PathBuf>,
}

struct InstalledSet {
    /// Folder that contains the packages and a copy of the scripts.
    folder: PathBuf,
    /// Interpreter of the scripts.
    interpreter: PathBuf,
    /// Folders with the programs, for `PATH`.
    bin: Vec<PathBuf>,
}

impl InstalledClients {
    /// Installs what these clients need and is missing, with the real CLIs if a case needs them.
    pub(super) fn new(rows: &[ClientRow], needs_real_clis: bool, target: &Path) -> Result<Self> {
        let sources = sources();
        let needed: BTreeSet<Packages> = rows.iter().map(|row| row.packages).collect();
        let install = |packages: Packages| {
            let set = InstalledSet::install(packages, &sources.join("packages"), target)?;
            copy_scripts(&sources.join("scripts"), &set.folder.join("scripts"))?;
            Ok((packages, set))
        };
        let sets = needed.into_iter().map(install).collect::<Result<_>>()?;
        let real_clis = needs_real_clis.then(|| ConformanceTools::new(false)).transpose()?;
        Ok(Self { sets, real_clis: real_clis.map(|tools| tools.installed.bin) })
    }

    pub(super) fn real_clis(&self) -> Option<&Path> {
        self.real_clis.as_deref()
    }

    /// Command that starts the script of a client.
    pub(super) fn script(&self, row: &ClientRow) -> Result<Command> {
        let set = self.set(row)?;
        let mut program = command(set.interpreter.to_str().context("the target folder's name is not UTF-8")?);
        program.arg(set.folder.join("scripts").join(&row.script));
        Ok(program)
    }

    /// Value of `PATH` before the folders of the system.
    pub(super) fn bin(&self, row: &ClientRow) -> Result<PathBuf> {
        let folders: Vec<String> = self.set(row)?.bin.iter().map(|folder| folder.display().to_string()).collect();
        Ok(folders.join(":").into())
    }

    /// Versions of the packages of a client, such as `openai 3.49.0`.
    pub(super) fn versions(&self, row: &ClientRow) -> Result<String> {
        let set = self.set(row)?;
        let version = |name: &String| -> Result<String> {
            let version = match requirements(row.packages) {
                Some(file) => pinned_version(&fs::read_to_string(sources().join("packages").join(file))?, name)?,
                None => npm::version(&set.folder.join("node_modules"), name)?,
            };
            Ok(format!("{name} {version}"))
        };
        Ok(row.shown.iter().map(version).collect::<Result<Vec<_>>>()?.join(", "))
    }

    fn set(&self, row: &ClientRow) -> Result<&InstalledSet> {
        self.sets.get(&row.packages).with_context(|| format!("{} is not installed", row.name))
    }
}

impl InstalledSet {
    fn install(packages: Packages, sources: &Path, target: &Path) -> Result<Self> {
        if let Some(file) = requirements(packages) {
            let folder = target.join(file.trim_end_matches(".txt"));
            let interpreter = pip::install(&folder, &sources.join(file))?;
            return Ok(Self { bin: vec![folder.join("bin")], folder, interpreter });
        }
        let cpu = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let npm_set = |name: &str, verb: &str| -> Result<(PathBuf, PathBuf)> {
            let folder = target.join(name);
            npm::install(&folder, &npm::pinned(&sources.join(name))?, &[verb], || Ok(()))?;
            let node = folder.join(format!("node_modules/node-linux-{cpu}/bin"));
            Ok((folder, node))
        };
        match packages {
            Packages::NodeSdks => {
                let (folder, node) = npm_set("node-sdks", "ci")?;
                Ok(Self { folder, interpreter: node.join("node"), bin: vec![node] })
            }
            Packages::NodeClis => {
                // Not `ci`, which needs the packages of all platforms in the lock file: npm does not have all of Cline's.
                let (folder, node) = npm_set("node-clis", "install")?;
                Ok(Self { bin: vec![folder.join("node_modules/.bin"), node], folder, interpreter: "python3".into() })
            }
            Packages::Conformance => {
                let tools = ConformanceTools::new(false)?;
                let bin = tools.installed.bin;
                let folder = bin.parent().context("no folder of the CLIs")?.to_owned();
                Ok(Self { folder, interpreter: "python3".into(), bin: vec![bin] })
            }
            Packages::PythonSdks | Packages::PythonFrameworks | Packages::PythonAgents | Packages::PythonAider => {
                bail!("a set of Python packages has a requirements file")
            }
        }
    }
}

/// The requirements file of a set of Python packages.
fn requirements(packages: Packages) -> Option<&'static str> {
    match packages {
        Packages::PythonSdks => Some("python-sdks.txt"),
        Packages::PythonFrameworks => Some("python-frameworks.txt"),
        Packages::PythonAgents => Some("python-agents.txt"),
        Packages::PythonAider => Some("python-aider.txt"),
        Packages::NodeSdks | Packages::NodeClis | Packages::Conformance => None,
    }
}

/// The version of a package in a requirements file.
fn pinned_version(requirements: &str, name: &str) -> Result<String> {
    let pinned = requirements.lines().find_map(|line| line.split_once("==").filter(|(package, _)| *package == name));
    Ok(pinned.with_context(|| format!("{name} is not pinned"))?.1.to_owned())
}

/// Node finds packages next to a script, so every set has a copy of the scripts.
fn copy_scripts(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        // Python leaves a folder with compiled modules behind.
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// `xtask/src/clients`.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/clients")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_found_by_the_whole_name_of_the_package() {
        let requirements = "# pinned\nopenai-agents==0.24.1\nopenai==3.49.0\n";
        assert_eq!(pinned_version(requirements, "openai").unwrap(), "3.49.0");
        assert!(pinned_version(requirements, "agents").is_err());
    }
}
