//! Walks a worktree's folders to find what git would skip: nested repositories, and folders that cannot be read.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, chmodat, openat, statat};
use rustix::io::Errno;

/// Maximum depth of folders. Git cannot store deeper paths either.
const MAX_DEPTH: usize = 2048;

/// Result of a survey, as paths relative to the worktree.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    /// Nested repositories. Git stores at most the name of their commit.
    pub(super) repositories: Vec<PathBuf>,
    /// Folders of which git stores nothing: named `.git` without being a repository, too deep, or unreadable.
    pub(super) skipped: Vec<PathBuf>,
}

impl Survey {
    /// Git arguments that add all files except those of nested repositories.
    pub(super) fn add_all(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = ["add", "--all", "--sparse"].map(OsString::from).into();
        if !self.repositories.is_empty() {
            args.extend(["--", "."].map(OsString::from));
        }
        args.extend(self.repositories.iter().map(|path| {
            let mut excluded = OsString::from(":(top,exclude,literal)");
            excluded.push(path);
            excluded
        }));
        args
    }
}

/// Surveys a folder. Subfolders that an agent has made unreadable are made readable again. Blocks.
pub(super) fn survey(folder: &Path) -> io::Result<Survey> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(folder, flags, Mode::empty())?;
    let mut found = Survey::default();
    let mut queue = vec![PathBuf::from(".")];
    while let Some(path) = queue.pop() {
        if path.components().count() > MAX_DEPTH {
            found.skipped.push(from_top(&path));
            continue;
        }
        let opened = open_folder(root.as_fd(), &path, flags);
        let Ok(folder) = opened else {
            found.skipped.push(from_top(&path));
            continue;
        };
        let top = path == Path::new(".");
        for name in folders_and_git(folder.as_fd())? {
            if name != ".git" {
                queue.push(path.join(name));
            } else if !top && is_repository(folder.as_fd()) {
                found.repositories.push(from_top(&path));
            } else if !top {
                found.skipped.push(from_top(&path.join(name)));
            }
        }
    }
    found.repositories.sort();
    found.skipped.sort();
    Ok(found)
}

/// Deletes a folder with everything in it, including what an agent has made unreadable. Blocks.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            survey(folder)?;
            fs::remove_dir_all(folder)
        }
        removed => removed,
    }
}

fn from_top(path: &Path) -> PathBuf {
    path.strip_prefix(".").unwrap_or(path).to_owned()
}

/// Opens a folder, and gives its owner all permissions if some are missing.
fn open_folder(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> io::Result<std::os::fd::OwnedFd> {
    let everything = Mode::RUSR | Mode::WUSR | Mode::XUSR;
    match openat(root, path, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            chmodat(root, path, everything, AtFlags::empty())?;
            Ok(openat(root, path, flags, Mode::empty())?)
        }
        Ok(folder) => {
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&folder)?.st_mode);
            // Without these, a folder may be listable but not enterable.
            if !mode.contains(everything) {
                let _ = rustix::fs::fchmod(&folder, mode | everything);
            }
            Ok(folder)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the names of subfolders, and `.git` whatever it is.
fn folders_and_git(folder: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        let file_type = entry.file_type();
        let is_folder = if file_type == FileType::Unknown {
            let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
            found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_dir())
        } else {
            file_type.is_dir()
        };
        if name != c"." && name != c".." && (is_folder || name == c".git") {
            names.push(OsString::from_vec(name.to_bytes().to_vec()));
        }
    }
    Ok(names)
}

/// Whether `.git` makes git treat a folder as a repository: it is a file or link, or a folder with a HEAD.
fn is_repository(folder: BorrowedFd<'_>) -> bool {
    let kind = |path: &str| {
        statat(folder, path, AtFlags::SYMLINK_NOFOLLOW).map(|found| FileType::from_raw_mode(found.st_mode))
    };
    kind(".git").is_ok_and(|found| !found.is_dir()) || kind(".git/HEAD").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn finds_repositories_and_stray_git_folders_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        for path in [".git/x", "plain/deep", "inner/.git/refs", "a/b/other/.git", "stray/.git"] {
            fs::create_dir_all(top.join(path)).unwrap();
        }
        for (path, text) in [("inner/.git/HEAD", "ref: x"), ("a/b/other/.git/HEAD", ""), ("stray/.git/notes", "n")] {
            fs::write(top.join(path), text).unwrap();
        }
        fs::create_dir(top.join("linked")).unwrap();
        fs::write(top.join("linked/.git"), "gitdir: /elsewhere").unwrap();
        symlink("/", top.join("root")).unwrap();
        let found = survey(top).unwrap();
        assert_eq!(found.repositories, ["a/b/other", "inner", "linked"].map(PathBuf::from));
        assert_eq!(found.skipped, [PathBuf::from("stray/.git")]);
    }

    #[test]
    fn opens_and_removes_unreadable_folders_when_their_owner_is_this_user() {
        let folder = tempfile::tempdir().unwrap();
        let closed = folder.path().join("tree/closed");
        fs::create_dir_all(closed.join("inner")).unwrap();
        fs::write(closed.join("inner/work"), "work").unwrap();
        for path in [closed.join("inner"), closed.clone()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
        }
        assert_eq!(survey(&folder.path().join("tree")).unwrap(), Survey::default());
        assert_eq!(fs::read_to_string(closed.join("inner/work")).unwrap(), "work");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
        remove(&folder.path().join("tree")).unwrap();
        assert!(!folder.path().join("tree").exists());
    }
}
