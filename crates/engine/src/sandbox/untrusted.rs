//! Access to files that an agent can write: a file may have been replaced by a symlink, a FIFO, or a file without end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, openat2, unlinkat};

/// Maximum size of a git file that holds only names or paths.
pub(crate) const MAX_GIT_FILE_BYTES: u64 = 64 * 1024;

/// Reads a regular file up to a size limit. Never blocks on a FIFO.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut options = File::options();
    let nonblocking = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = options.read(true).custom_flags(nonblocking).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = Vec::new();
    if file.take(limit + 1).read_to_end(&mut text)? as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than it should be"));
    }
    Ok(text)
}

/// Replaces whatever has that name by a new file. Does not follow a symlink of that name; the folder must be trusted or [`real`].
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    match unlinkat(CWD, &new, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    File::options().write(true).create_new(true).open(&new)?.write_all(text)?;
    std::fs::rename(&new, path)
}

/// Appends to a file below a folder, and creates the folders between. A symlink on the way is an error.
pub(crate) fn append(folder: &Path, file: &Path, text: &[u8]) -> io::Result<()> {
    let root = rustix::fs::open(folder, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let mut parent = PathBuf::new();
    for part in file.parent().into_iter().flat_map(Path::components) {
        parent.push(part);
        match rustix::fs::mkdirat(&root, &parent, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        openat2(&root, &parent, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    }
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(openat2(&root, file, flags, Mode::from_raw_mode(0o666), resolve)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    file.write_all(text)
}

/// Whether a folder exists, and no component of its path is a symlink.
pub(crate) fn real(folder: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, folder, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn reading_fails_when_the_file_is_a_fifo_or_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(read(&pipe, 10).is_err());
        let file = folder.path().join("file");
        fs::write(&file, "0123456789").unwrap();
        assert_eq!(read(&file, 10).unwrap(), b"0123456789");
        assert!(read(&file, 9).is_err());
    }

    #[test]
    fn nothing_is_appended_when_a_symlink_or_fifo_is_on_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        append(&inside, Path::new("a/b.log"), b"one\n").unwrap();
        append(&inside, Path::new("a/b.log"), b"two\n").unwrap();
        assert_eq!(fs::read_to_string(inside.join("a/b.log")).unwrap(), "one\ntwo\n");
        symlink(&outside, inside.join("link")).unwrap();
        symlink(outside.join("log"), inside.join("a/log")).unwrap();
        rustix::fs::mknodat(CWD, inside.join("pipe"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .unwrap();
        for path in ["link/log", "link/deep/log", "a/log", "../out/log", "pipe"] {
            assert!(append(&inside, Path::new(path), b"x").is_err(), "{path}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn symlink_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (mine, file) = (folder.path().join("mine"), folder.path().join("gitdir"));
        fs::write(&mine, "mine").unwrap();
        for link in ["gitdir", "gitdir.new"] {
            let _ = fs::remove_file(folder.path().join(link));
            symlink(&mine, folder.path().join(link)).unwrap();
        }
        replace(&file, b"text").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
        assert!(real(folder.path()) && !real(&file));
    }
}
