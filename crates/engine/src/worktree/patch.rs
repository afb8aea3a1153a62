//! The changes of a run as a patch.

use std::path::Path;

use trunkline_core::failure::Failure;

use super::Worktrees;
use super::folder::Worktree;

impl Worktrees {
    /// The patch from one commit to another.
    pub(crate) async fn diff_of(&self, repo: &Path, base: &str, commit: &str) -> Result<Vec<u8>, Failure> {
        let diff = [
            "diff",
            "--ignore-submodules=none",
            "--no-ext-diff",
            "--no-textconv",
            "--binary",
            "--end-of-options",
            base,
            commit,
            "--",
        ];
        self.git.at(repo).run(&diff).await
    }

    /// The patch of a worktree's files as they are, new ones included. Neither its index nor the repository is written.
    pub(crate) async fn diff(&self, worktree: &Worktree) -> Result<Vec<u8>, Failure> {
        let room = self.room(worktree).await?;
        let survey = self.survey(worktree).await?;
        let call = || {
            let call = self.in_room(&room, worktree).with("GIT_OBJECT_DIRECTORY", room.new_objects());
            call.with("GIT_ALTERNATE_OBJECT_DIRECTORIES", worktree.common.join("objects"))
        };
        call().run(&survey.add_all()).await?;
        let diff = ["diff", "--cached", "--no-ext-diff", "--no-textconv", "--binary", &worktree.base, "--"];
        call().run(&diff).await
    }
}
