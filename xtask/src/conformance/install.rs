//! The CLIs, at the versions of `conformance/package.json`, and the vendors' SDKs. Kept under `target/conformance` and
//! installed again only when what is asked for has changed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::clis::Cli;
use crate::npm;
use crate::test::command;

/// What is installed, and where.
pub(crate) struct Installed {
    /// One entry for each CLI and Node, to be the front of a `PATH`.
    pub(crate) bin: PathBuf,
    modules: PathBuf,
}

impl Installed {
    /// The versions of the lock file.
    pub(crate) fn pinned(sources: &Path, target: &Path) -> Result<Self> {
        let folder = target.join("clis");
        install(&folder, &npm::pinned(sources)?, &["ci"])
    }

    /// The newest versions there are.
    pub(crate) fn latest(sources: &Path, target: &Path) -> Result<Self> {
        let mut package: Value = serde_json::from_str(&read(&sources.join("package.json"))?)?;
        let named = package["dependencies"].as_object_mut().context("package.json has no dependencies")?;
        for (name, version) in named {
            // By number: on an older Node the tag `latest` silently gives an older claude.
            let newest = command("npm").args(["view", name, "version"]).output()?;
            *version = String::from_utf8(newest.stdout)?.trim().to_owned().into();
        }
        install(&target.join("latest"), &[format!("{package:#}"), String::new()], &["install"])
    }

    pub(crate) fn version(&self, cli: &Cli) -> Result<String> {
        let package: Value = serde_json::from_str(&read(&self.modules.join(cli.package).join("package.json"))?)?;
        Ok(package["version"].as_str().context("a package without a version")?.to_owned())
    }
}

/// The packages, and a folder of programs to start. The platform packages hold those; scripts, which are not run, would
/// only fetch or copy them.
fn install(folder: &Path, wanted: &[String; 2], verb: &[&str]) -> Result<Installed> {
    let installed = Installed { bin: folder.join("bin"), modules: folder.join("node_modules") };
    npm::install(folder, wanted, verb, || {
        fs::create_dir_all(&installed.bin)?;
        for (name, program) in programs(&installed.modules)? {
            symlink(program, installed.bin.join(name))?;
        }
        Ok(())
    })?;
    Ok(installed)
}

/// What each CLI is started by: the program itself where npm's own entry is a stub that a script would replace.
fn programs(modules: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let cpu = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let all = vec![
        ("claude", modules.join(format!("@anthropic-ai/claude-code-linux-{cpu}/claude"))),
        ("codex", modules.join("@openai/codex/bin/codex.js")),
        ("gemini", modules.join("@google/gemini-cli/bundle/gemini.js")),
        ("qwen", modules.join(".bin/qwen")),
        ("opencode", modules.join(format!("opencode-linux-{cpu}/bin/opencode"))),
        ("node", modules.join(format!("node-linux-{cpu}/bin/node"))),
    ];
    for (name, program) in &all {
        if !program.exists() {
            bail!("{name} is not where it was: there is no {}", program.display());
        }
    }
    Ok(all)
}

/// A Python with the vendors' SDKs.
pub(crate) fn python(sources: &Path, target: &Path) -> Result<PathBuf> {
    let folder = target.join("venv");
    let (python, stamp) = (folder.join("bin/python"), folder.join("installed"));
    let requirements = sources.join("requirements.txt");
    let wanted = read(&requirements)?;
    if fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
        return Ok(python);
    }
    eprintln!("installing the SDKs into {}", folder.display());
    let made = command("python3").args(["-m", "venv", "--clear"]).arg(&folder).status()?.success();
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    let program = python.to_str().context("the target folder's name is not UTF-8")?;
    if !made || !command(program).args(pip).arg(&requirements).status()?.success() {
        bail!("pip cannot install the SDKs");
    }
    fs::write(stamp, wanted)?;
    Ok(python)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
