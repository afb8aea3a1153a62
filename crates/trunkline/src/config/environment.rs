//! Environment variables and current folder of the process, read once.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

#[derive(Debug, Clone)]
pub(crate) struct Environment {
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) folder: PathBuf,
}

impl Environment {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self { env: std::env::vars_os().collect(), folder: std::env::current_dir()? })
    }

    /// Value of a variable that is set and not empty.
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

    /// A path as written in a file or an argument, [normalised](normal): `~/` is the home folder, and a relative path is
    /// relative to `folder`.
    pub(crate) fn path(&self, written: &str, folder: &Path) -> PathBuf {
        normal(&match written.strip_prefix("~/") {
            Some(rest) => self.home().join(rest.trim_start_matches('/')),
            None if written == "~" => self.home(),
            None => folder.join(written),
        })
    }

    /// `$XDG_CONFIG_HOME/trunkline`, by default `~/.config/trunkline`.
    pub(crate) fn config_home(&self) -> PathBuf {
        self.xdg("XDG_CONFIG_HOME", ".config")
    }

    /// `$XDG_STATE_HOME/trunkline`, by default `~/.local/state/trunkline`.
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

/// The path without `.`, `..` and trailing slashes. A `..` after a symbolic link is the parent of the link's target, as it is
/// for the kernel. Other links are kept, so that a link that is later changed leads to its new target.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if normal.is_symlink()
                    && let Ok(target) = normal.canonicalize()
                {
                    normal = target;
                }
                normal.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn normalises_every_spelling_of_a_path() {
        let environment = Environment { env: vec![("HOME".into(), "/home/me/".into())], folder: "/here".into() };
        for (written, expected) in [
            ("../shop", "/shop"),
            ("../../../shop", "/shop"),
            (".", "/conf"),
            ("./", "/conf"),
            ("./a//b/", "/conf/a/b"),
            ("a/../b/./c/..", "/conf/b"),
            ("/shop/", "/shop"),
            ("/shop/./x/..", "/shop"),
            ("/", "/"),
            ("~", "/home/me"),
            ("~/", "/home/me"),
            ("~/shop/", "/home/me/shop"),
            ("~/../you/./shop", "/home/you/shop"),
            ("~//shop", "/home/me/shop"),
        ] {
            assert_eq!(environment.path(written, Path::new("/conf")).to_str(), Some(expected), "{written}");
        }
    }

    #[test]
    fn parent_of_a_link_is_the_parent_of_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("data/conf")).unwrap();
        symlink("data/conf", root.join("conf")).unwrap();
        assert_eq!(normal(&root.join("conf/../shop")), root.join("data/shop"));
        assert_eq!(normal(&root.join("conf/shop")), root.join("conf/shop"), "the link itself is kept");
        assert_eq!(normal(&root.join("conf/x/../shop")), root.join("conf/shop"));
    }
}
