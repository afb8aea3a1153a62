//! What a run has changed, as a patch.

use std::path::Path;
use std::{fs, io};

use trunkline_core::failure::{Category, Failure};

use super::{Worktree, Worktrees};
use crate::git::Tree;

impl Worktrees {
    /// The patch from one commit to another.
    pub(crate) async fn diff_of(&self, repo: &Path, base: &str, commit: &str) -> Result<Vec<u8>, Failure> {
        self.git.run(repo, &["diff", "--no-ext-diff", "--no-textconv", "--binary", base, commit, "--"]).await
    }

    /// The patch of what is in a worktree now, new files too. Its index is the agent's: what is needed for this is kept
    /// elsewhere, and goes with it.
    pub(crate) async fn diff(&self, worktree: &Worktree) -> Result<Vec<u8>, Failure> {
        let refuse = |error: io::Error| Failure::new(Category::Server, format!("no room for a diff: {error}"));
        let folder = self.base.join(format!(".diff-{}", uuid::Uuid::now_v7()));
        fs::create_dir_all(folder.join("objects")).map_err(refuse)?;
        let index = folder.join("index");
        // What git has seen of the files spares it reading them again.
        let _read_anew = fs::copy(worktree.registration.join("index"), &index);
        let env = [
            ("GIT_INDEX_FILE", index.into_os_string()),
            ("GIT_OBJECT_DIRECTORY", folder.join("objects").into_os_string()),
            ("GIT_ALTERNATE_OBJECT_DIRECTORIES", worktree.common.join("objects").into_os_string()),
        ];
        let git = self.git.with_env(env);
        let tree = Tree { path: &worktree.path, registration: &worktree.registration };
        let patch = async {
            git.run_in(&tree, &["add", "--all"]).await?;
            let diff = ["diff", "--cached", "--no-ext-diff", "--no-textconv", "--binary", &worktree.base, "--"];
            git.run_in(&tree, &diff).await
        };
        let patch = patch.await;
        let _in_the_way_of_nobody = fs::remove_dir_all(&folder);
        patch
    }
}
