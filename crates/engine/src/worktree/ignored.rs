//! Files that a run made and then hid from git by changing the ignore rules.
//!
//! Files that the repository's own rules ignore (build output, caches) are deleted with the worktree. A rule that the
//! run itself added is no reason to delete what the run made.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use trunkline_core::failure::Failure;

use super::Worktrees;
use super::folder::Worktree;
use super::private_git_dir::PrivateGitDir;
use crate::worktree::git::GitPaths;

/// Pathspec of the ignore files in all folders.
const IGNORE_FILES: &str = ":(glob)**/.gitignore";

impl Worktrees {
    /// Returns the files and folders that are ignored now, and were not by the rules that the run started from.
    pub(super) async fn newly_ignored(
        &self,
        git_dir: &PrivateGitDir,
        worktree: &Worktree,
        commit: &str,
    ) -> Result<Vec<PathBuf>, Failure> {
        let changed = ["diff-tree", "-r", "--name-only", "-z", &worktree.base, commit, "--", IGNORE_FILES];
        if self.private_git(git_dir, worktree).run(&changed).await?.is_empty() {
            return Ok(Vec::new());
        }
        let list = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"];
        let ignored = self.private_git(git_dir, worktree).run(&list).await?;
        if ignored.is_empty() {
            return Ok(Vec::new());
        }
        let before = self.ignored_before(git_dir, worktree, &ignored).await?;
        Ok(paths(&ignored).into_iter().filter(|path| !before.contains(path)).collect())
    }

    /// Returns those of the listed paths that the rules of the base commit ignore.
    async fn ignored_before(
        &self,
        git_dir: &PrivateGitDir,
        worktree: &Worktree,
        listed: &[u8],
    ) -> Result<Vec<PathBuf>, Failure> {
        let files = git_dir.path.join("rules");
        // A rule may match only folders, so these must exist.
        for folder in listed.split(|byte| *byte == 0).filter(|path| path.ends_with(b"/")) {
            let _ = fs::create_dir_all(files.join(OsStr::from_bytes(folder)));
        }
        let _ = fs::create_dir_all(&files);
        let call = || {
            let tree = GitPaths { files: &files, git_dir: &git_dir.path };
            self.git.on(tree).writing([git_dir.path.clone()]).with("GIT_INDEX_FILE", git_dir.path.join("rules-index"))
        };
        call().run(&["read-tree", &worktree.base]).await?;
        let rules = call().run(&["ls-files", "-z", "--", IGNORE_FILES]).await?;
        call().stdin(rules).run(&["checkout-index", "--force", "-z", "--stdin"]).await?;
        // Git exits with a failure status if no path is ignored.
        let ignored = call().stdin(listed.to_vec()).run(&["check-ignore", "--no-index", "-z", "--stdin"]).await;
        Ok(ignored.map(|ignored| paths(&ignored)).unwrap_or_default())
    }
}

fn paths(listed: &[u8]) -> Vec<PathBuf> {
    let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}
