//! Installation of the CLIs, at the versions of `conformance/package.json`, in `target/conformance`. Repeated only when the
//! requested versions change.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::clis::CliUnderTest;
use crate::npm;
use crate::test::command;

/// Folders of the installed CLIs.
pub(crate) struct InstalledClis {
    /// One entry for each CLI and for Node; goes to the front of `PATH`.
    pub(crate) bin: PathBuf,
    modules: PathBuf,
}

impl InstalledClis {
    /// Installs the versions of the lock file.
    pub(crate) fn pinned(sources: &Path, target: &Path) -> Result<Self> {
        let folder = target.join("clis");
        install(&folder, &npm::pinned(sources)?, &["ci"])
    }

    /// Installs the newest versions.
    pub(crate) fn latest(sources: &Path, target: &Path) -> Result<Self> {
        let mut package: Value = serde_json::from_str(&read(&sources.join("package.json"))?)?;
        let named = package["dependencies"].as_object_mut().context("package.json has no dependencies")?;
        for (name, version) in named {
            // By version number: on an older Node, the tag `latest` silently installs an older claude.
            let newest = command("npm").args(["view", name, "version"]).output()?;
            *version = String::from_utf8(newest.stdout)?.trim().to_owned().into();
        }
        install(&target.join("latest"), &[format!("{package:#}"), String::new()], &["install"])
    }

    pub(crate) fn version(&self, cli: &CliUnderTest) -> Result<String> {
        npm::version(&self.modules, cli.package)
    }
}

/// Installs the packages and a folder with links to their programs. The platform packages contain the programs; the install
/// scripts, which are not run, would only download or copy them.
fn install(folder: &Path, wanted: &[String; 2], verb: &[&str]) -> Result<InstalledClis> {
    let installed = InstalledClis { bin: folder.join("bin"), modules: folder.join("node_modules") };
    npm::install(folder, wanted, verb, || {
        fs::create_dir_all(&installed.bin)?;
        for (name, program) in programs(&installed.modules)? {
            symlink(program, installed.bin.join(name))?;
        }
        Ok(())
    })?;
    Ok(installed)
}

/// The program of each CLI. Where npm's entry is a stub that an install script would replace, the program itself.
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
            bail!("{name}: {} does not exist; has the layout of its package changed?", program.display());
        }
    }
    Ok(all)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
