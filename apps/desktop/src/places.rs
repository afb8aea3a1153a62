//! Where things are: what we keep, where we meet other instances of ourselves, and the binary we start.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::args::Args;

#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// Ours alone: what is remembered of the window, and what the page keeps.
    state: PathBuf,
    /// Where a second instance finds the first.
    runtime: PathBuf,
    /// The trunkline binary; a bare name is looked up on the search path when it is started.
    pub(crate) server: PathBuf,
    /// Where a gateway is started.
    pub(crate) folder: PathBuf,
}

impl Places {
    pub(crate) fn find(args: &Args) -> Result<Self> {
        let folder = match &args.folder {
            Some(folder) => folder.canonicalize().with_context(|| format!("--folder {}", folder.display()))?,
            None => std::env::current_dir().context("the current folder is gone")?,
        };
        if !folder.is_dir() {
            bail!("--folder {}: not a folder", folder.display());
        }
        let home = || variable("HOME").unwrap_or_else(|| PathBuf::from("/"));
        let state = variable("TRUNKLINE_STATE").map(|state| folder.join(state)).unwrap_or_else(|| {
            let states = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
            states.unwrap_or_else(|| home().join(".local/state")).join("trunkline")
        });
        let state = state.join("desktop");
        private_folder(&state)?;
        let runtime = variable("XDG_RUNTIME_DIR").filter(|path| path.is_dir()).unwrap_or_else(|| state.clone());
        let server = args.server.clone().unwrap_or_else(|| beside_us().unwrap_or_else(|| "trunkline".into()));
        Ok(Self { state, runtime, server, folder })
    }

    pub(crate) fn memory(&self) -> PathBuf {
        self.state.join("window.json")
    }

    /// Cookies and what the page stores.
    pub(crate) fn web(&self) -> PathBuf {
        self.state.join("web")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.runtime.join("trunkline-desktop.lock")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime.join("trunkline-desktop.sock")
    }

    #[cfg(test)]
    pub(crate) fn within(folder: &Path) -> Self {
        let path = || folder.to_owned();
        Self { state: path(), runtime: path(), server: "trunkline".into(), folder: path() }
    }
}

/// What the page keeps is between its user and the gateway.
fn private_folder(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot make the folder {}", path.display()))
}

/// The binary that came with this one.
fn beside_us() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.with_file_name("trunkline")).filter(|path| path.is_file())
}

/// A variable that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
