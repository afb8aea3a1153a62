//! A folder at a glance: whether anything in it has changed since it was last looked at.
//!
//! Nothing is read. A file's place on the disk, its length and its two times are enough: the time of its last change is the
//! kernel's, and cannot be set back. Git's own way to find out (`status`) costs more, and overlooks what is ignored.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use blake3::{Hash, Hasher};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, Stat, openat, statat};

/// Those who look, beside others that work.
const EYES: usize = 4;

/// How the worktree and its entry in the repository look. Takes about a microsecond a file: not for a thread that others
/// need.
pub(super) fn look(folder: &Path, registration: &Path) -> io::Result<Hash> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(folder, flags, Mode::empty())?;
    let looking =
        Looking { root: root.as_fd(), folders: Mutex::new(Folders::of(PathBuf::from("."))), more: Condvar::new() };
    let eyes = thread::available_parallelism().map_or(1, |cores| cores.get().min(EYES));
    let mut seen = thread::scope(|scope| {
        let others: Vec<_> = (1..eyes).map(|_| scope.spawn(|| looking.run())).collect();
        let mut seen = looking.run();
        for other in others {
            let other = other.join().unwrap_or_else(|_| Err(io::Error::other("the look at a folder broke off")));
            seen = seen.and_then(|mut seen| other.map(|other| seen.extend(other)).map(|()| seen));
        }
        seen
    })?;
    let registration = rustix::fs::open(registration, flags, Mode::empty())?;
    // Its logs grow and shrink without anybody's doing.
    let (of_registration, _) = see(registration.as_fd(), |name| name != c"logs")?;
    // Who came first to which folder is chance.
    seen.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut hasher = Hasher::new();
    for (path, hash) in &seen {
        hasher.update(path.as_os_str().as_encoded_bytes()).update(&[0]).update(hash.as_bytes());
    }
    hasher.update(of_registration.as_bytes());
    Ok(hasher.finalize())
}

/// Folders that are still to be looked at, by several.
struct Looking<'a> {
    root: BorrowedFd<'a>,
    folders: Mutex<Folders>,
    more: Condvar,
}

struct Folders {
    left: Vec<PathBuf>,
    /// How many are being looked at: there may be more in them.
    busy: usize,
    failed: bool,
}

impl Folders {
    fn of(first: PathBuf) -> Self {
        Self { left: vec![first], busy: 0, failed: false }
    }
}

impl Looking<'_> {
    /// Looks at folders until none is left.
    fn run(&self) -> io::Result<Vec<(PathBuf, Hash)>> {
        let mut seen = Vec::new();
        while let Some(path) = self.next() {
            let looked = self.at(&path);
            let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
            folders.busy -= 1;
            folders.failed |= looked.is_err();
            if let Ok((_, inside)) = &looked {
                folders.left.extend(inside.iter().map(|name| path.join(name)));
            }
            drop(folders);
            self.more.notify_all();
            let (hash, _) = looked?;
            seen.push((path, hash));
        }
        Ok(seen)
    }

    fn next(&self) -> Option<PathBuf> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if folders.failed {
                return None;
            }
            if let Some(path) = folders.left.pop() {
                folders.busy += 1;
                return Some(path);
            }
            if folders.busy == 0 {
                return None;
            }
            folders = self.more.wait(folders).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn at(&self, path: &Path) -> io::Result<(Hash, Vec<PathBuf>)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(self.root, path, flags, Mode::empty())?;
        see(folder.as_fd(), |_| true)
    }
}

/// What is in one folder, and which of it are folders.
fn see(folder: BorrowedFd<'_>, counts: impl Fn(&std::ffi::CStr) -> bool) -> io::Result<(Hash, Vec<PathBuf>)> {
    let (mut text, mut inside) = (Vec::with_capacity(8192), Vec::new());
    let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." || !counts(name) {
            continue;
        }
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        text.extend_from_slice(name.to_bytes_with_nul());
        stamp(&found, &mut text);
        if rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() {
            inside.push(std::ffi::OsString::from_vec(CString::from(name).into_bytes()).into());
        }
    }
    Ok((blake3::hash(&text), inside))
}

/// What tells a file from what it was.
fn stamp(found: &Stat, text: &mut Vec<u8>) {
    let numbers = [found.st_dev, found.st_ino, found.st_size.cast_unsigned(), found.st_mode.into()];
    let times = [found.st_mtime, found.st_mtime_nsec.cast_signed(), found.st_ctime, found.st_ctime_nsec.cast_signed()];
    numbers.iter().for_each(|number| text.extend_from_slice(&number.to_le_bytes()));
    times.iter().for_each(|time| text.extend_from_slice(&time.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn whatever_changes_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, registration) = (folder.path().join("tree"), folder.path().join("registration"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir_all(registration.join("logs")).unwrap();
        fs::write(tree.join("a/b/file"), "one").unwrap();
        fs::write(tree.join("other"), "one").unwrap();
        fs::write(registration.join("HEAD"), "commit").unwrap();
        let now = || look(&tree, &registration).unwrap();
        let mut before = now();
        fs::write(registration.join("logs/HEAD"), "a line").unwrap();
        assert_eq!(before, now());
        let file = tree.join("a/b/file");
        let steps: [(&str, &dyn Fn()); 8] = [
            ("another text", &|| fs::write(&file, "longer").unwrap()),
            ("a new file", &|| fs::write(tree.join("a/new"), "").unwrap()),
            ("an empty folder", &|| fs::create_dir(tree.join("a/empty")).unwrap()),
            ("a link", &|| symlink("/etc", tree.join("link")).unwrap()),
            ("another name", &|| fs::rename(tree.join("other"), tree.join("another")).unwrap()),
            ("what may be done", &|| fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap()),
            ("another commit", &|| fs::write(registration.join("HEAD"), "other").unwrap()),
            ("a file less", &|| fs::remove_file(&file).unwrap()),
        ];
        for (what, change) in steps {
            change();
            let after = now();
            assert_ne!(before, after, "{what}");
            before = after;
        }
        let moved = folder.path().join("moved");
        fs::rename(&tree, &moved).unwrap();
        assert_eq!(look(&moved, &registration).unwrap(), before, "where it is does not matter");
    }
}
