//! File locations: saved state, the lock and socket of the instance, and the gateway binary.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::args::Args;

#[derive(Debug, Clone)]
pub(crate) struct DesktopPaths {
    /// Private folder for the saved window state and the page's data.
    state: PathBuf,
    /// Folder of the instance lock and socket.
    runtime: PathBuf,
    /// The trunkline binary; a bare name is looked up on PATH when it is started.
    pub(crate) server: PathBuf,
    /// Working directory of a gateway that we start.
    pub(crate) folder: PathBuf,
}

impl DesktopPaths {
    pub(crate) fn find(args: &Args) -> Result<Self> {
        let folder = match &args.folder {
            Some(folder) => folder.canonicalize().with_context(|| format!("--folder {}", folder.display()))?,
            None => std::env::current_dir().context("the current folder does not exist")?,
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
        let server = args.server.clone().unwrap_or_else(|| bundled_server().unwrap_or_else(|| "trunkline".into()));
        Ok(Self { state, runtime, server, folder })
    }

    pub(crate) fn saved_window(&self) -> PathBuf {
        self.state.join("window.json")
    }

    /// Folder for cookies and the page's local storage.
    pub(crate) fn page_data(&self) -> PathBuf {
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

/// Creates a folder that other users cannot read: the page's data includes cookies and possibly an API key.
fn private_folder(path: &Path) -> Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.with_context(|| format!("cannot create the folder {}", path.display()))
}

/// Returns the trunkline binary in the same folder as this program.
fn bundled_server() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.with_file_name("trunkline")).filter(|path| path.is_file())
}

/// Reads an environment variable that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
