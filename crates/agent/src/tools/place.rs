//! Where a path leads, and whether the model may go there.

use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use trunkline_core::near::near;
use trunkline_core::provider::Permissions;

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;
/// What the kernel takes.
const LONGEST: usize = 4096;
/// In how many names of a folder one is looked for that was perhaps meant.
const MOST_NAMES: usize = 10_000;

/// The folder that the tools work in, and what they may do there.
pub(super) struct Workspace {
    pub(super) root: PathBuf,
    pub(super) permissions: Permissions,
    /// Where files may be read besides, links resolved.
    pub(super) readable: Vec<PathBuf>,
}

/// Where a path leads.
#[derive(Debug)]
pub(super) struct Place<'a> {
    /// The path as the model wrote it: the name to use in an answer.
    pub(super) asked: &'a str,
    /// Absolute, without links and `..`, as far as it exists; the rest as written.
    pub(super) path: PathBuf,
    root: PathBuf,
}

impl Workspace {
    /// Follows a path to its end, which need not exist, for what is only read.
    pub(super) fn find_to_read<'a>(&self, asked: &'a str) -> Result<Place<'a>, String> {
        self.find(asked, &self.readable)
    }

    /// `besides` are the places outside the workspace that may be used.
    fn find<'a>(&self, asked: &'a str, besides: &[PathBuf]) -> Result<Place<'a>, String> {
        if asked.is_empty() {
            return Err("the path is empty; name a file".into());
        }
        if asked.len() > LONGEST || asked.contains('\0') {
            return Err(format!("the path is not a path: it has a NUL byte or more than {LONGEST} bytes"));
        }
        if asked == "~" || asked.starts_with("~/") {
            return Err(format!("`{asked}`: `~` is not expanded here; use a path relative to the workspace"));
        }
        let root = fs::canonicalize(&self.root)
            .map_err(|error| format!("cannot find the workspace {}: {error}", self.root.display()))?;
        let path =
            follow(&root, Path::new(asked)).map_err(|error| format!("cannot tell where `{asked}` leads: {error}"))?;
        let free = match self.permissions {
            Permissions::Read | Permissions::Edit => false,
            Permissions::Full => true,
        };
        if free || path.starts_with(&root) || besides.iter().any(|folder| path.starts_with(folder)) {
            return Ok(Place { asked, path, root });
        }
        let (path, root) = (path.display(), root.display());
        Err(format!("`{asked}` leads to {path}, outside the workspace {root}; only files inside it may be used"))
    }

    /// The same for what is to be changed. What git keeps for itself is not: its settings and hooks are programs that run
    /// in the user's name, and a worktree's `.git` says whose it is.
    pub(super) fn find_to_change<'a>(&self, asked: &'a str) -> Result<Place<'a>, String> {
        let place = self.find(asked, &[])?;
        let gits = |part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
        let inside = place.path.strip_prefix(&place.root).unwrap_or(&place.path);
        match self.permissions {
            Permissions::Read | Permissions::Edit if inside.components().any(gits) => {
                Err(format!("`{asked}` belongs to git and is not to be written; its commands change what is in there"))
            }
            Permissions::Read | Permissions::Edit | Permissions::Full => Ok(place),
        }
    }

    /// Whether a hint may send the model to bash.
    pub(super) const fn has_bash(&self) -> bool {
        match self.permissions {
            Permissions::Read => false,
            Permissions::Edit | Permissions::Full => true,
        }
    }
}

impl Place<'_> {
    /// What is there, if anything.
    pub(super) fn look(&self) -> Result<Option<Metadata>, String> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(self.cannot("look at", &error)),
        }
    }

    pub(super) fn cannot(&self, what: &str, error: &io::Error) -> String {
        format!("cannot {what} `{}`: {error}", self.asked)
    }

    /// Says that nothing is there, how far the path leads, and what may have been meant.
    pub(super) fn missing(&self) -> String {
        let mut said = format!("`{}` does not exist", self.asked);
        let Some((folder, step)) = self.last_step() else { return said };
        if !folder.is_dir() {
            return format!("{said}: `{}` is not a folder", self.shown(folder));
        }
        if step != self.path {
            said.push_str(&format!(": there is no folder `{}`", self.shown(step)));
        }
        let name = step.file_name().unwrap_or_default().to_string_lossy();
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_NAMES);
        let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let near = near(&name, names.iter().map(String::as_str));
        let near: Vec<String> = near.iter().map(|name| format!("`{}`", self.shown(&folder.join(name)))).collect();
        if !near.is_empty() {
            said.push_str(&format!("; perhaps you mean {}", near.join(" or ")));
        }
        said
    }

    /// Makes the folders for what is to be written here.
    pub(super) fn make_room(&self) -> Result<(), String> {
        match self.last_step() {
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

    /// How far the path leads: the last part of it that exists, and the next, which does not.
    fn last_step(&self) -> Option<(&Path, &Path)> {
        let mut parents = self.path.ancestors().skip(1).zip(self.path.ancestors());
        parents.find(|(folder, _)| folder.symlink_metadata().is_ok())
    }

    /// A path as the model would write it.
    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

/// What kind of thing is there, if it is neither a file nor a folder.
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

/// Walks along a path as the kernel does, except that what does not exist is no obstacle.
///
/// `canonicalize` cannot tell where a file that is yet to be written would come to lie, and dropping `..` from the text
/// would go wrong behind a link.
fn follow(start: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut place = start.to_owned();
    let mut ahead = path.to_owned();
    let mut links = 0;
    loop {
        let mut parts = ahead.components();
        let Some(part) = parts.next() else { return Ok(place) };
        let mut rest = parts.as_path().to_owned();
        match part {
            Component::RootDir => place = "/".into(),
            Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => {
                place.pop();
            }
            Component::Normal(name) => {
                place.push(name);
                match fs::read_link(&place) {
                    Ok(_) if links == MOST_LINKS => return Err(io::Error::other("too many symbolic links")),
                    Ok(target) => {
                        links += 1;
                        place.pop();
                        rest = target.join(rest);
                    }
                    // Not a link.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                    Err(error) if is_missing(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        ahead = rest;
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
