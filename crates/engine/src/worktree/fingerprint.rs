//! Fingerprint of a folder: tells whether anything in it has changed since the last fingerprint.
//!
//! No file is read. Device, inode, size, mode and the two times of a file are enough: the kernel sets the change time,
//! and no program can set it back. `git status` costs more, and misses ignored files.

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

/// Maximum number of threads for one fingerprint.
const MAX_THREADS: usize = 4;

/// Returns the fingerprint of a worktree and its registration. Takes about a microsecond per file. Blocks.
pub(super) fn fingerprint(folder: &Path, registration: &Path) -> io::Result<Hash> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(folder, flags, Mode::empty())?;
    let walk = FolderWalk {
        root: root.as_fd(),
        queue: Mutex::new(WalkQueue::of(PathBuf::from("."))),
        changed: Condvar::new(),
    };
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get().min(MAX_THREADS));
    let mut hashes = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| walk.run())).collect();
        let mut hashes = walk.run();
        for other in others {
            let other = other.join().unwrap_or_else(|_| Err(io::Error::other("a fingerprint thread panicked")));
            hashes = hashes.and_then(|mut hashes| other.map(|other| hashes.extend(other)).map(|()| hashes));
        }
        hashes
    })?;
    let registration = rustix::fs::open(registration, flags, Mode::empty())?;
    // Git rewrites the logs without a change of the worktree.
    let (of_registration, _) = hash_folder(registration.as_fd(), |name| name != c"logs")?;
    // The order in which threads visit folders is arbitrary.
    hashes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut hasher = Hasher::new();
    for (path, hash) in &hashes {
        hasher.update(path.as_os_str().as_encoded_bytes()).update(&[0]).update(hash.as_bytes());
    }
    hasher.update(of_registration.as_bytes());
    Ok(hasher.finalize())
}

/// Walk through a folder by several threads.
struct FolderWalk<'a> {
    root: BorrowedFd<'a>,
    queue: Mutex<WalkQueue>,
    /// Notified when the queue has changed.
    changed: Condvar,
}

struct WalkQueue {
    folders: Vec<PathBuf>,
    /// Number of folders being read, which may add more to the queue.
    busy: usize,
    failed: bool,
}

impl WalkQueue {
    fn of(first: PathBuf) -> Self {
        Self { folders: vec![first], busy: 0, failed: false }
    }
}

impl FolderWalk<'_> {
    /// Hashes folders until the queue is empty.
    fn run(&self) -> io::Result<Vec<(PathBuf, Hash)>> {
        let mut hashes = Vec::new();
        while let Some(path) = self.next() {
            let hashed = self.hash(&path);
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.busy -= 1;
            queue.failed |= hashed.is_err();
            if let Ok((_, subfolders)) = &hashed {
                queue.folders.extend(subfolders.iter().map(|name| path.join(name)));
            }
            drop(queue);
            self.changed.notify_all();
            let (hash, _) = hashed?;
            hashes.push((path, hash));
        }
        Ok(hashes)
    }

    fn next(&self) -> Option<PathBuf> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if queue.failed {
                return None;
            }
            if let Some(path) = queue.folders.pop() {
                queue.busy += 1;
                return Some(path);
            }
            if queue.busy == 0 {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn hash(&self, path: &Path) -> io::Result<(Hash, Vec<PathBuf>)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(self.root, path, flags, Mode::empty())?;
        hash_folder(folder.as_fd(), |_| true)
    }
}

/// Hashes the entries of one folder. Returns the names of its subfolders as well.
fn hash_folder(folder: BorrowedFd<'_>, counts: impl Fn(&std::ffi::CStr) -> bool) -> io::Result<(Hash, Vec<PathBuf>)> {
    let (mut text, mut subfolders) = (Vec::with_capacity(8192), Vec::new());
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
        append_metadata(&found, &mut text);
        if rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() {
            subfolders.push(std::ffi::OsString::from_vec(CString::from(name).into_bytes()).into());
        }
    }
    Ok((blake3::hash(&text), subfolders))
}

/// Appends the metadata that changes with a file.
fn append_metadata(found: &Stat, text: &mut Vec<u8>) {
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
    fn fingerprint_changes_when_anything_in_the_folder_does() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, registration) = (folder.path().join("tree"), folder.path().join("registration"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir_all(registration.join("logs")).unwrap();
        fs::write(tree.join("a/b/file"), "one").unwrap();
        fs::write(tree.join("other"), "one").unwrap();
        fs::write(registration.join("HEAD"), "commit").unwrap();
        let now = || fingerprint(&tree, &registration).unwrap();
        let mut before = now();
        fs::write(registration.join("logs/HEAD"), "a line").unwrap();
        assert_eq!(before, now());
        let file = tree.join("a/b/file");
        let steps: [(&str, &dyn Fn()); 8] = [
            ("changed content", &|| fs::write(&file, "longer").unwrap()),
            ("a new file", &|| fs::write(tree.join("a/new"), "").unwrap()),
            ("an empty folder", &|| fs::create_dir(tree.join("a/empty")).unwrap()),
            ("a symbolic link", &|| symlink("/etc", tree.join("link")).unwrap()),
            ("a renamed file", &|| fs::rename(tree.join("other"), tree.join("another")).unwrap()),
            ("changed permissions", &|| fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap()),
            ("changed HEAD", &|| fs::write(registration.join("HEAD"), "other").unwrap()),
            ("a removed file", &|| fs::remove_file(&file).unwrap()),
        ];
        for (what, change) in steps {
            change();
            let after = now();
            assert_ne!(before, after, "{what}");
            before = after;
        }
        let moved = folder.path().join("moved");
        fs::rename(&tree, &moved).unwrap();
        assert_eq!(fingerprint(&moved, &registration).unwrap(), before, "the path does not matter");
    }
}
