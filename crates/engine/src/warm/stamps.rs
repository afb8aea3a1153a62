//! Files as they were: whether one has changed since a process read it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What tells a file from what it was: where it lies on which disk, how long it is, when it was written.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// Some files at one moment. Only equal ones are as they were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamps(Vec<(PathBuf, Stamp)>);

impl Stamps {
    /// The program, and what it reads: each name in `cwd` and every folder above it, or after `~/` in `home`.
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

fn stamp(file: &Path) -> Stamp {
    let found = fs::metadata(file).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_comes_changes_or_goes_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (cwd, home) = (folder.path().join("repo/sub"), folder.path().join("home"));
        fs::create_dir_all(&cwd).unwrap();
        fs::create_dir_all(&home).unwrap();
        let program = folder.path().join("cli");
        fs::write(&program, "1").unwrap();
        let reads = ["AGENTS.md".to_owned(), "~/settings".to_owned()];
        let now = || Stamps::now(&program, &reads, &cwd, Some(&home));
        let mut before = now();
        assert_eq!(before, now());
        let above = folder.path().join("repo/AGENTS.md");
        let steps: [(&str, &dyn Fn()); 5] = [
            ("an update", &|| fs::write(&program, "22").unwrap()),
            ("a new file above", &|| fs::write(&above, "rule").unwrap()),
            ("another text", &|| fs::write(&above, "another rule").unwrap()),
            ("settings", &|| fs::write(home.join("settings"), "{}").unwrap()),
            ("a file less", &|| fs::remove_file(&above).unwrap()),
        ];
        for (what, change) in steps {
            change();
            let after = now();
            assert_ne!(before, after, "{what}");
            before = after;
        }
    }
}
