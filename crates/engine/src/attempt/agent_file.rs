//! Instructions of a repository (`AGENTS.md` and the like). Only a regular file inside the repository is read, up to a size limit.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::prompt::MAX_AGENT_FILE_BYTES;

use crate::attempt::file_memo::Sources;

/// As [`read`]. Notes the file, so that a change takes effect with the next run. The content was in the repository when it
/// was read, and it is read again before a changed file is used: a file that has left the repository is then refused.
pub(crate) fn read_noting(repo: &Path, name: &str, sources: &mut Sources) -> Result<Option<Arc<str>>, Failure> {
    sources.add(&repo.join(name));
    Ok(read(repo, name)?.map(Arc::from))
}

/// Reads the agent file; `None` if it does not exist. A link that leaves the repository is refused.
pub(crate) fn read(repo: &Path, name: &str) -> Result<Option<String>, Failure> {
    let refuse = |why: String| Failure::new(Category::Configuration, format!("agent file {name}: {why}"));
    let path = repo.join(name);
    let Ok(real) = path.canonicalize() else { return Ok(None) };
    let root = repo.canonicalize().map_err(|error| refuse(format!("{}: {error}", repo.display())))?;
    if !real.starts_with(&root) {
        return Err(refuse("it leads out of the repository".to_owned()));
    }
    // Opened without blocking: a FIFO in its place must not hang the run.
    let opened =
        rustix::fs::open(&real, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, rustix::fs::Mode::empty());
    let file = File::from(opened.map_err(|error| refuse(error.to_string()))?);
    let metadata = file.metadata().map_err(|error| refuse(error.to_string()))?;
    if !metadata.file_type().is_file() {
        return Err(refuse("it is not a regular file".to_owned()));
    }
    if metadata.len() > MAX_AGENT_FILE_BYTES {
        return Err(refuse(format!("{} bytes, at most {MAX_AGENT_FILE_BYTES}", metadata.len())));
    }
    let mut bytes = Vec::new();
    file.take(MAX_AGENT_FILE_BYTES).read_to_end(&mut bytes).map_err(|error| refuse(error.to_string()))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Checks that the repository's folder exists.
pub(crate) fn check_repo(repo: &Path) -> Result<(), Failure> {
    match fs::metadata(repo) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(Failure::new(Category::Configuration, format!("repoPath {} is not a folder", repo.display()))),
        Err(error) => Err(Failure::new(Category::Configuration, format!("repoPath {}: {error}", repo.display()))
            .hint("correct repoPath in models.json")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::attempt::file_memo::FileMemo;
    use crate::attempt::file_memo::tests::{later, next_tick};

    #[test]
    fn change_is_noticed_when_the_content_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let (repo, outside) = (folder.path().join("repo"), folder.path().join("outside.md"));
        fs::create_dir(&repo).unwrap();
        let file = repo.join("AGENTS.md");
        let memo = FileMemo::default();
        let read = || memo.get_at(later(), |sources| read_noting(&repo, "AGENTS.md", sources));
        assert_eq!(read().unwrap(), None);
        for text in ["rule", "RULE"] {
            next_tick(folder.path());
            fs::write(&file, text).unwrap();
            assert_eq!(read().unwrap().as_deref(), Some(text));
        }
        next_tick(folder.path());
        fs::write(&outside, "secret").unwrap();
        fs::remove_file(&file).unwrap();
        symlink(&outside, &file).unwrap();
        assert!(read().unwrap_err().message.contains("out of"), "a link that leads out of the repository");
    }

    #[test]
    fn only_a_regular_file_inside_the_repository_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let repo = folder.path().join("repo");
        fs::create_dir_all(repo.join("docs")).unwrap();
        fs::write(repo.join("AGENTS.md"), "be brief\n").unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        symlink("../secret", repo.join("out.md")).unwrap();
        symlink("AGENTS.md", repo.join("in.md")).unwrap();
        fs::write(repo.join("big.md"), vec![b'x'; MAX_AGENT_FILE_BYTES as usize + 1]).unwrap();

        assert_eq!(read(&repo, "AGENTS.md").unwrap().as_deref(), Some("be brief\n"));
        assert_eq!(read(&repo, "in.md").unwrap().as_deref(), Some("be brief\n"));
        assert_eq!(read(&repo, "missing.md").unwrap(), None);
        for (name, why) in [("out.md", "out of"), ("../secret", "out of"), ("docs", "regular"), ("big.md", "at most")] {
            let failure = read(&repo, name).unwrap_err();
            assert!(failure.message.contains(why), "{name}: {}", failure.message);
        }
    }

    #[test]
    fn case_32_reading_does_not_hang_when_the_file_is_a_fifo() {
        let folder = tempfile::tempdir().unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.path().join("AGENTS.md"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(read(folder.path(), "AGENTS.md").unwrap_err().message.contains("regular"));
    }
}
