//! Resolves paths, and checks whether the model may use them.

use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use trunkline_core::near::near;
use trunkline_core::vocabulary::Permissions;

/// Symbolic links followed in one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Length of a path, as in the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// Entries of a folder that are searched for a similar name.
const MAX_SEARCHED_NAMES: usize = 10_000;

/// The folder that the tools work in, with its permissions.
pub(super) struct Workspace {
    pub(super) root: PathBuf,
    pub(super) permissions: Permissions,
    /// Further folders in which files may be read, with links resolved.
    pub(super) readable: Vec<PathBuf>,
}

/// A resolved path.
#[derive(Debug)]
pub(super) struct WorkspacePath<'a> {
    /// The path as the model wrote it, for use in messages.
    pub(super) asked: &'a str,
    /// Absolute, without links and `..` as far as it exists; the rest as written.
    pub(super) path: PathBuf,
    root: PathBuf,
}

impl Workspace {
    /// Resolves a path for reading. It need not exist.
    pub(super) fn find_to_read<'a>(&self, asked: &'a str) -> Result<WorkspacePath<'a>, String> {
        self.find(asked, &self.readable)
    }

    /// Resolves a path in the workspace or below one of the `other_folders`.
    fn find<'a>(&self, asked: &'a str, other_folders: &[PathBuf]) -> Result<WorkspacePath<'a>, String> {
        if asked.is_empty() {
            return Err("the path is empty; name a file".into());
        }
        if asked.len() > MAX_PATH_BYTES || asked.contains('\0') {
            return Err(format!("the path is not a path: it has a NUL byte or more than {MAX_PATH_BYTES} bytes"));
        }
        if asked == "~" || asked.starts_with("~/") {
            return Err(format!("`{asked}`: `~` is not expanded here; use a path relative to the workspace"));
        }
        let root = fs::canonicalize(&self.root)
            .map_err(|error| format!("cannot find the workspace {}: {error}", self.root.display()))?;
        let path = follow(&root, Path::new(asked)).map_err(|error| format!("cannot resolve `{asked}`: {error}"))?;
        let unrestricted = match self.permissions {
            Permissions::Read | Permissions::Edit => false,
            Permissions::Full => true,
        };
        if unrestricted || path.starts_with(&root) || other_folders.iter().any(|folder| path.starts_with(folder)) {
            return Ok(WorkspacePath { asked, path, root });
        }
        let (path, root) = (path.display(), root.display());
        Err(format!("`{asked}` leads to {path}, outside the workspace {root}; only files inside it may be used"))
    }

    /// Resolves a path for writing. Paths in `.git` are refused: git's settings and hooks are programs that run as the user,
    /// and the `.git` file of a worktree names its repository.
    pub(super) fn find_to_change<'a>(&self, asked: &'a str) -> Result<WorkspacePath<'a>, String> {
        let resolved = self.find(asked, &[])?;
        let is_git = |part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
        let inside = resolved.path.strip_prefix(&resolved.root).unwrap_or(&resolved.path);
        match self.permissions {
            Permissions::Read | Permissions::Edit if inside.components().any(is_git) => {
                Err(format!("`{asked}` belongs to git and must not be written; use git commands to change it"))
            }
            Permissions::Read | Permissions::Edit | Permissions::Full => Ok(resolved),
        }
    }

    /// Whether a hint may recommend bash to the model.
    pub(super) const fn has_bash(&self) -> bool {
        match self.permissions {
            Permissions::Read => false,
            Permissions::Edit | Permissions::Full => true,
        }
    }
}

impl WorkspacePath<'_> {
    /// Metadata of the file, if it exists.
    pub(super) fn metadata(&self) -> Result<Option<Metadata>, String> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(self.cannot("read", &error)),
        }
    }

    pub(super) fn cannot(&self, what: &str, error: &io::Error) -> String {
        format!("cannot {what} `{}`: {error}", self.asked)
    }

    /// Message for a path that does not exist: its first missing part, and similar names.
    pub(super) fn missing(&self) -> String {
        let mut message = format!("`{}` does not exist", self.asked);
        let Some((folder, step)) = self.last_existing() else { return message };
        if !folder.is_dir() {
            return format!("{message}: `{}` is not a folder", self.shown(folder));
        }
        if step != self.path {
            message.push_str(&format!(": there is no folder `{}`", self.shown(step)));
        }
        let name = step.file_name().unwrap_or_default().to_string_lossy();
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_SEARCHED_NAMES);
        let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let near = near(&name, names.iter().map(String::as_str));
        let near: Vec<String> = near.iter().map(|name| format!("`{}`", self.shown(&folder.join(name)))).collect();
        if !near.is_empty() {
            message.push_str(&format!("; perhaps you mean {}", near.join(" or ")));
        }
        message
    }

    /// Creates the parent folders of a file.
    pub(super) fn create_parents(&self) -> Result<(), String> {
        match self.last_existing() {
            Some((folder, _)) if !folder.is_dir() => {
                Err(format!("cannot write `{}`: `{}` is not a folder", self.asked, self.shown(folder)))
            }
            Some((folder, step)) if step != self.path => {
                let parent = self.path.parent().unwrap_or(folder);
                fs::create_dir_all(parent).map_err(|error| self.cannot("create the folder of", &error))
            }
            _ => Ok(()),
        }
    }

    /// The longest part of the path that exists, and the same with the next component, which does not.
    fn last_existing(&self) -> Option<(&Path, &Path)> {
        let mut parents = self.path.ancestors().skip(1).zip(self.path.ancestors());
        parents.find(|(folder, _)| folder.symlink_metadata().is_ok())
    }

    /// A path relative to the workspace, as the model would write it.
    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

/// Description of a file type that is neither a file nor a folder.
pub(super) fn special(kind: FileType) -> Option<&'static str> {
    if kind.is_file() || kind.is_dir() {
        None
    } else if kind.is_fifo() {
        Some("a named pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else if kind.is_symlink() {
        Some("a symbolic link")
    } else {
        Some("a device")
    }
}

/// Resolves a path as the kernel does, except that components need not exist.
///
/// `canonicalize` cannot resolve the path of a new file, and removing `..` from the text gives a wrong result after a link.
fn follow(start: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut resolved = start.to_owned();
    let mut remaining = path.to_owned();
    let mut links = 0;
    loop {
        let mut parts = remaining.components();
        let Some(part) = parts.next() else { return Ok(resolved) };
        let mut rest = parts.as_path().to_owned();
        match part {
            Component::RootDir => resolved = "/".into(),
            Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => {
                resolved.pop();
            }
            Component::Normal(name) => {
                resolved.push(name);
                match fs::read_link(&resolved) {
                    Ok(_) if links == MAX_LINKS => return Err(io::Error::other("too many symbolic links")),
                    Ok(target) => {
                        links += 1;
                        resolved.pop();
                        rest = target.join(rest);
                    }
                    // The component is not a link.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                    Err(error) if is_missing(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        remaining = rest;
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
