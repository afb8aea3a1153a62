//! Files that a run made and then hid from git by changing the ignore rules.
//!
//! What the repository's own rules ignore (build output, caches) goes with the worktree, as it would in any clean-up. A
//! rule that the run itself added is no reason to throw away what the run made.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use trunkline_core::failure::Failure;

use super::Worktrees;
use super::folder::Worktree;
use super::room::Room;
use crate::worktree::git::Tree;

/// The ignore files of every folder, as git names them.
const IGNORE_FILES: &str = ":(glob)**/.gitignore";

impl Worktrees {
    /// Files and folders that are ignored by rules which the run changed, and were not by those it started from.
    pub(super) async fn newly_ignored(
        &self,
        room: &Room,
        worktree: &Worktree,
        commit: &str,
    ) -> Result<Vec<PathBuf>, Failure> {
        let changed = ["diff-tree", "-r", "--name-only", "-z", &worktree.base, commit, "--", IGNORE_FILES];
        if self.in_room(room, worktree).run(&changed).await?.is_empty() {
            return Ok(Vec::new());
        }
        let list = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"];
        let ignored = self.in_room(room, worktree).run(&list).await?;
        if ignored.is_empty() {
            return Ok(Vec::new());
        }
        let before = self.ignored_before(room, worktree, &ignored).await?;
        Ok(paths(&ignored).into_iter().filter(|path| !before.contains(path)).collect())
    }

    /// Which of these paths the rules of the run's first commit ignore.
    async fn ignored_before(&self, room: &Room, worktree: &Worktree, listed: &[u8]) -> Result<Vec<PathBuf>, Failure> {
        let files = room.path.join("rules");
        // A rule may be for folders alone.
        for folder in listed.split(|byte| *byte == 0).filter(|path| path.ends_with(b"/")) {
            let _ = fs::create_dir_all(files.join(OsStr::from_bytes(folder)));
        }
        let _ = fs::create_dir_all(&files);
        let call = || {
            let tree = Tree { files: &files, git_dir: &room.path };
            self.git.on(tree).writing([room.path.clone()]).with("GIT_INDEX_FILE", room.path.join("rules-index"))
        };
        call().run(&["read-tree", &worktree.base]).await?;
        let rules = call().run(&["ls-files", "-z", "--", IGNORE_FILES]).await?;
        call().stdin(rules).run(&["checkout-index", "--force", "-z", "--stdin"]).await?;
        // Nothing ignored is an exit status of its own.
        let ignored = call().stdin(listed.to_vec()).run(&["check-ignore", "--no-index", "-z", "--stdin"]).await;
        Ok(ignored.map(|ignored| paths(&ignored)).unwrap_or_default())
    }
}

fn paths(listed: &[u8]) -> Vec<PathBuf> {
    let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}
