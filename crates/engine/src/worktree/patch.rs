//! What a run has changed, as a patch.

use std::path::{Path, PathBuf};
use std::{fs, io};

use trunkline_core::failure::{Category, Failure};

use super::{Worktree, Worktrees};
use crate::git::Tree;
use crate::owner::Owner;

/// How the folders of patches that are made begin; the name of their gateway follows, and a point.
const PREFIX: &str = ".diff-";

/// What is needed for a patch, gone with whoever asks for it.
struct Room(PathBuf);

impl Worktrees {
    /// The patch from one commit to another.
    pub(crate) async fn diff_of(&self, repo: &Path, base: &str, commit: &str) -> Result<Vec<u8>, Failure> {
        self.git.run(repo, &["diff", "--no-ext-diff", "--no-textconv", "--binary", base, commit, "--"]).await
    }

    /// The patch of what is in a worktree now, new files too. Its index is the agent's: what is needed for this is kept
    /// elsewhere, and goes with it.
    pub(crate) async fn diff(&self, worktree: &Worktree) -> Result<Vec<u8>, Failure> {
        let refuse = |error: io::Error| Failure::new(Category::Server, format!("no room for a diff: {error}"));
        let room = Room::new(&self.base).map_err(refuse)?;
        let index = room.0.join("index");
        // What git has seen of the files spares it reading them again.
        let _read_anew = fs::copy(worktree.registration.join("index"), &index);
        let env = [
            ("GIT_INDEX_FILE", index.into_os_string()),
            ("GIT_OBJECT_DIRECTORY", room.0.join("objects").into_os_string()),
            ("GIT_ALTERNATE_OBJECT_DIRECTORIES", worktree.common.join("objects").into_os_string()),
        ];
        let git = self.git.with_env(env);
        let tree = Tree { path: &worktree.path, registration: &worktree.registration };
        git.run_in(&tree, &["add", "--all"]).await?;
        let diff = ["diff", "--cached", "--no-ext-diff", "--no-textconv", "--binary", &worktree.base, "--"];
        git.run_in(&tree, &diff).await
    }

    /// Removes what gateways that died left of patches.
    pub(super) fn sweep_patches(&self) {
        let dead = |name: &str| {
            let of = name.strip_prefix(PREFIX).and_then(|name| name.split_once('.'));
            of.and_then(|(owner, _)| Owner::from_name(owner)).is_some_and(|owner| !owner.lives())
        };
        let folders = fs::read_dir(&self.base).into_iter().flatten().flatten();
        for folder in folders.filter(|folder| folder.file_name().to_str().is_some_and(dead)) {
            let _in_the_way_of_nobody = fs::remove_dir_all(folder.path());
        }
    }
}

impl Room {
    fn new(base: &Path) -> io::Result<Self> {
        let owner = Owner::this_process().name();
        let room = Self(base.join(format!("{PREFIX}{owner}.{}", uuid::Uuid::now_v7())));
        fs::create_dir_all(room.0.join("objects"))?;
        Ok(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _in_the_way_of_nobody = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_goes_with_whoever_asked() {
        let base = tempfile::tempdir().unwrap();
        let room = Room::new(base.path()).unwrap();
        fs::write(room.0.join("objects/one"), "").unwrap();
        drop(room);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
