//! Private git directory for git calls on an agent's files.
//!
//! The agent can write the worktree's registration in the repository: HEAD, index, configuration, and the file that
//! names the repository. A private git directory takes none of these from there. Its index is a copy from before the
//! agent started, so that no flag or forged entry hides a change, and it names the repository itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use trunkline_core::failure::{Category, Failure};

use super::Worktrees;
use super::folder::Worktree;
use crate::runs::gateway_process::GatewayProcess;
use crate::worktree::git::{GitCall, GitPaths};

/// A private git directory. Deleted when dropped.
pub(super) struct PrivateGitDir {
    pub(super) path: PathBuf,
}

impl PrivateGitDir {
    fn new(private_git_dirs: &Path) -> io::Result<Self> {
        let owner = GatewayProcess::this_process().name();
        fs::create_dir_all(private_git_dirs)?;
        let git_dir = Self { path: private_git_dirs.canonicalize()?.join(format!("{owner}.{}", uuid::Uuid::now_v7())) };
        // If this folder were called `objects`, git-lfs would take it for a repository and store large files here.
        fs::create_dir_all(git_dir.new_objects())?;
        Ok(git_dir)
    }

    /// Object store that is deleted with the directory.
    pub(super) fn new_objects(&self) -> PathBuf {
        self.path.join("new-objects")
    }

    pub(super) fn index(&self) -> PathBuf {
        self.path.join("index")
    }
}

impl Drop for PrivateGitDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Worktrees {
    /// Creates a private git directory for a worktree, with the index from before the agent started if there is one.
    pub(super) async fn private_git_dir(&self, worktree: &Worktree) -> Result<PrivateGitDir, Failure> {
        let refuse = |error: io::Error| {
            Failure::new(Category::Server, format!("cannot create a private git directory: {error}"))
        };
        let git_dir = PrivateGitDir::new(&self.private_git_dirs).map_err(refuse)?;
        let common = worktree.common.as_os_str().as_encoded_bytes();
        fs::write(git_dir.path.join("HEAD"), format!("{}\n", worktree.base)).map_err(refuse)?;
        fs::write(git_dir.path.join("commondir"), [common, b"\n"].concat()).map_err(refuse)?;
        worktree.link_git_crypt_keys(&git_dir.path);
        if self.ledger.copy_index_to(worktree, &git_dir.index()).is_err() {
            self.private_git(&git_dir, worktree).run(&["read-tree", &worktree.base]).await?;
        }
        Ok(git_dir)
    }

    /// Git call on the worktree's files with a private git directory. It may write only that directory.
    pub(super) fn private_git(&self, git_dir: &PrivateGitDir, worktree: &Worktree) -> GitCall<'_> {
        let tree = GitPaths { files: &worktree.path, git_dir: &git_dir.path };
        self.git.on(tree).writing([git_dir.path.clone()])
    }

    /// Deletes private git directories of dead gateways.
    pub(super) fn sweep_private_git_dirs(&self) {
        let dead = |name: &str| {
            let owner = name.split_once('.').and_then(|(owner, _)| GatewayProcess::from_name(owner));
            owner.is_some_and(|owner| !owner.is_alive())
        };
        let folders = fs::read_dir(&self.private_git_dirs).into_iter().flatten().flatten();
        for folder in folders.filter(|folder| folder.file_name().to_str().is_some_and(dead)) {
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_deleted_when_dropped() {
        let private_git_dirs = tempfile::tempdir().unwrap();
        let git_dir = PrivateGitDir::new(private_git_dirs.path()).unwrap();
        fs::write(git_dir.new_objects().join("one"), "").unwrap();
        drop(git_dir);
        assert_eq!(fs::read_dir(private_git_dirs.path()).unwrap().count(), 0);
    }
}
