//! Stamps of files: tell whether a file has changed since a process read it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Device, inode, size and modification time of a file. `None` if it does not exist.
type FileStamp = Option<(u64, u64, u64, i64, i64)>;

/// Stamps of several files at one moment. If two are equal, no file has changed in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStamps(Vec<(PathBuf, FileStamp)>);

impl FileStamps {
    /// Stamps the program and the files that it reads: each name in `cwd` and every folder above it, or in `home` if it
    /// begins with `~/`.
    pub(crate) fn now(program: &Path, reads: &[String], cwd: &Path, home: Option<&Path>) -> Self {
        let mut files = vec![program.to_owned()];
        for name in reads {
            match (name.strip_prefix("~/"), home) {
                (Some(name), Some(home)) => files.push(home.join(name)),
                (Some(_), None) => {}
                (None, _) => files.extend(cwd.ancestors().map(|folder| folder.join(name))),
            }
        }
        Self(files.into_iter().map(|file| (stamp(&file), file)).map(|(stamp, file)| (file, stamp)).collect())
    }
}

fn stamp(file: &Path) -> FileStamp {
    let found = fs::metadata(file).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_differ_when_a_file_is_added_changed_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (cwd, home) = (folder.path().join("repo/sub"), folder.path().join("home"));
        fs::create_dir_all(&cwd).unwrap();
        fs::create_dir_all(&home).unwrap();
        let program = folder.path().join("cli");
        fs::write(&program, "1").unwrap();
        let reads = ["AGENTS.md".to_owned(), "~/settings".to_owned()];
        let now = || FileStamps::now(&program, &reads, &cwd, Some(&home));
        let mut before = now();
        assert_eq!(before, now());
        let above = folder.path().join("repo/AGENTS.md");
        let steps: [(&str, &dyn Fn()); 5] = [
            ("an updated program", &|| fs::write(&program, "22").unwrap()),
            ("a new file in a parent folder", &|| fs::write(&above, "rule").unwrap()),
            ("changed content", &|| fs::write(&above, "another rule").unwrap()),
            ("a new settings file", &|| fs::write(home.join("settings"), "{}").unwrap()),
            ("a removed file", &|| fs::remove_file(&above).unwrap()),
        ];
        for (what, change) in steps {
            change();
            let after = now();
            assert_ne!(before, after, "{what}");
            before = after;
        }
    }
}
