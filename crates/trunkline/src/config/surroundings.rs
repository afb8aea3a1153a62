//! What surrounds the process: its environment and folder, read once.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) folder: PathBuf,
}

impl Surroundings {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self { env: std::env::vars_os().collect(), folder: std::env::current_dir()? })
    }

    /// A variable that is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.raw(name)?.to_str().filter(|value| !value.is_empty())
    }

    fn raw(&self, name: &str) -> Option<&OsStr> {
        self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    pub(crate) fn search_path(&self) -> Option<&OsStr> {
        self.raw("PATH")
    }

    fn home(&self) -> PathBuf {
        self.raw("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
    }

    /// A path as people write it: `~/` is the home, and what is relative is relative to `folder`.
    pub(crate) fn path(&self, written: &str, folder: &Path) -> PathBuf {
        match written.strip_prefix("~/") {
            Some(rest) => self.home().join(rest),
            None if written == "~" => self.home(),
            // Component by component: "." adds nothing.
            None => folder.join(written).components().collect(),
        }
    }

    /// `$XDG_CONFIG_HOME/trunkline`, or where that is by default.
    pub(crate) fn config_home(&self) -> PathBuf {
        self.xdg("XDG_CONFIG_HOME", ".config")
    }

    pub(crate) fn state_home(&self) -> PathBuf {
        self.xdg("XDG_STATE_HOME", ".local/state")
    }

    fn xdg(&self, variable: &str, default: &str) -> PathBuf {
        self.raw(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| self.home().join(default))
            .join("trunkline")
    }
}
