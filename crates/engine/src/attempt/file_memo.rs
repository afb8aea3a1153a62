//! Results of examining files, kept until one of the files changes.
//!
//! A turn needs to know many things about the disk that rarely change: where a program is, whether a private home is
//! complete, what an agent file says. Finding that out takes dozens of system calls; noticing that nothing has changed
//! takes one for each file.
//!
//! Any change of a file changes its stamp: another file in its place has another inode, and writing to it, setting its
//! times or its mode changes the time of the last change (`ctime`), which a program cannot set. The kernel's clock for
//! that time is coarse, so a second change soon after the first may not be visible. A result is therefore kept only if
//! all its files had been unchanged for [`SETTLED_AFTER`] when they were examined.
//!
//! Everything that the sandbox depends on is examined for every turn instead.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;

/// Age of the last change of a file from which on another change is certain to be visible. Some file systems store only
/// even seconds.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// Device, inode, mode, size, and the times of the last modification and the last change.
type FileStamp = (u64, u64, u32, u64, (i64, i64), (i64, i64));

/// A result, and the files that it was derived from.
#[derive(Debug)]
pub(crate) struct FileMemo<T>(ArcSwapOption<Known<T>>);

#[derive(Debug)]
struct Known<T> {
    files: Vec<(PathBuf, Option<FileStamp>)>,
    value: T,
}

/// Files that a result depends on, as they were before they were examined.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    files: Vec<(PathBuf, Option<FileStamp>)>,
    latest_change: Option<(i64, i64)>,
    is_incomplete: bool,
}

impl Sources {
    /// Adds a file or folder, whether it exists or not. Must be called before it is examined. Links are followed.
    pub(crate) fn add(&mut self, path: &Path) {
        let stamp = stamp(path);
        self.latest_change = self.latest_change.max(stamp.map(|(.., changed)| changed));
        self.files.push((path.to_owned(), stamp));
    }

    /// Notes that not everything could be examined: the result is not kept.
    pub(crate) fn set_incomplete(&mut self) {
        self.is_incomplete = true;
    }

    fn are_settled(&self, now: SystemTime) -> bool {
        let Some((seconds, nanos)) = self.latest_change else { return true };
        let changed = u64::try_from(seconds).ok().zip(u32::try_from(nanos).ok());
        let changed = changed.map(|(seconds, nanos)| UNIX_EPOCH + Duration::new(seconds, nanos));
        changed.is_some_and(|changed| now.duration_since(changed).is_ok_and(|age| age >= SETTLED_AFTER))
    }
}

impl<T> Default for FileMemo<T> {
    fn default() -> Self {
        Self(ArcSwapOption::empty())
    }
}

impl<T: Clone> FileMemo<T> {
    /// Returns the result. It is derived again if one of its files has changed. An error is not kept.
    pub(crate) fn get<E>(&self, derive: impl FnOnce(&mut Sources) -> Result<T, E>) -> Result<T, E> {
        self.get_at(SystemTime::now(), derive)
    }

    /// As [`get`](Self::get), at this time.
    pub(crate) fn get_at<E>(&self, now: SystemTime, derive: impl FnOnce(&mut Sources) -> Result<T, E>) -> Result<T, E> {
        if let Some(known) = &*self.0.load()
            && known.files.iter().all(|(path, before)| stamp(path) == *before)
        {
            return Ok(known.value.clone());
        }
        let mut sources = Sources::default();
        let value = derive(&mut sources)?;
        if !sources.is_incomplete && sources.are_settled(now) {
            self.0.store(Some(Arc::new(Known { files: sources.files, value: value.clone() })));
        }
        Ok(value)
    }
}

fn stamp(path: &Path) -> Option<FileStamp> {
    let found = fs::metadata(path).ok()?;
    let (modified, changed) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    Some((found.dev(), found.ino(), found.mode(), found.len(), modified, changed))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A time at which the present state of all files is settled.
    pub(crate) fn later() -> SystemTime {
        SystemTime::now() + 2 * SETTLED_AFTER
    }

    /// Returns when the kernel's clock for files has moved on, so that the next change is visible.
    pub(crate) fn next_tick(folder: &Path) {
        let probe = folder.join(".tick");
        let written = || {
            fs::write(&probe, "").unwrap();
            stamp(&probe)
        };
        let before = written();
        while written() == before {}
        fs::remove_file(&probe).unwrap();
    }

    /// Reads a file through a memo. Returns the content, and whether the file was read.
    fn read(memo: &FileMemo<String>, path: &Path, now: SystemTime) -> (String, bool) {
        let derived = Cell::new(false);
        let text = memo.get_at(now, |sources| {
            derived.set(true);
            sources.add(path);
            Ok::<_, Infallible>(fs::read_to_string(path).unwrap_or_default())
        });
        (text.unwrap(), derived.get())
    }

    #[test]
    fn result_is_derived_again_when_its_file_changes_in_any_way() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("file"), folder.path().join("other"));
        fs::write(&file, "one").unwrap();
        fs::write(&other, "all").unwrap();
        let memo = FileMemo::default();
        let kept_time = fs::metadata(&file).unwrap().modified().unwrap();
        let put_back = || {
            fs::write(&file, "two").unwrap();
            fs::File::open(&file).unwrap().set_modified(kept_time).unwrap();
        };
        let steps: [(&str, &dyn Fn(), &str); 7] = [
            ("the first time", &|| (), "one"),
            ("same size and time of modification", &put_back, "two"),
            ("another mode", &|| fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap(), "two"),
            ("replaced", &|| fs::rename(&other, &file).unwrap(), "all"),
            ("removed", &|| fs::remove_file(&file).unwrap(), ""),
            ("created", &|| fs::write(&file, "new").unwrap(), "new"),
            (
                "a link in its place",
                &|| {
                    fs::rename(&file, &other).unwrap();
                    symlink(&other, &file).unwrap();
                },
                "new",
            ),
        ];
        for (what, change, text) in steps {
            next_tick(folder.path());
            change();
            assert_eq!(read(&memo, &file, later()), (text.to_owned(), true), "{what}");
            assert_eq!(read(&memo, &file, later()), (text.to_owned(), false), "{what}, again");
        }
    }

    #[test]
    fn result_is_not_kept_when_its_file_has_just_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let memo = FileMemo::default();
        fs::write(&file, "one").unwrap();
        for _ in 0..2 {
            assert_eq!(read(&memo, &file, SystemTime::now()), ("one".to_owned(), true));
        }
    }

    #[test]
    fn error_is_not_kept() {
        let memo = FileMemo::<u32>::default();
        assert_eq!(memo.get(|_| Err("no")), Err("no"));
        assert_eq!(memo.get(|_| Ok::<_, &str>(1)), Ok(1));
    }
}
