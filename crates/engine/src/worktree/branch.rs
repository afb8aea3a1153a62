//! The branch that keeps the work of a run: `trunkline/<run>`, or the nearest free name.

use trunkline_core::failure::{Category, Failure};

use super::Worktrees;
use super::folder::Worktree;
use super::private_git_dir::PrivateGitDir;

impl Worktrees {
    /// Puts a commit on a new branch and returns the branch name. An existing branch is only ever fast-forwarded;
    /// otherwise another name is used.
    pub(super) async fn put_on_branch(
        &self,
        git_dir: &PrivateGitDir,
        worktree: &Worktree,
        commit: &str,
    ) -> Result<String, Failure> {
        let mut first = None;
        for branch in names(&worktree.run) {
            let reference = format!("refs/heads/{branch}");
            match self.claim(git_dir, worktree, &reference, commit).await {
                Ok(()) => return Ok(branch),
                Err(failure) => _ = first.get_or_insert(failure),
            }
        }
        let no_name = || Failure::new(Category::Server, "no branch name");
        Err(first.unwrap_or_else(no_name))
    }

    /// Creates the reference, or fast-forwards it if an earlier save created it.
    async fn claim(
        &self,
        git_dir: &PrivateGitDir,
        worktree: &Worktree,
        reference: &str,
        commit: &str,
    ) -> Result<(), Failure> {
        let update = |old: String| async move {
            let call = self.private_git(git_dir, worktree).writing(worktree.reference_stores());
            call.run(&["update-ref", reference, commit, &old]).await
        };
        let zero = "0".repeat(commit.len());
        let Err(failure) = update(zero).await else { return Ok(()) };
        let resolve = ["rev-parse", "--verify", "--quiet", "--end-of-options", reference];
        let Ok(present) = self.private_git(git_dir, worktree).line(&resolve).await else { return Err(failure) };
        if present == commit {
            return Ok(());
        }
        let ancestor = ["merge-base", "--is-ancestor", &present, commit];
        if self.private_git(git_dir, worktree).run(&ancestor).await.is_err() {
            return Err(failure);
        }
        update(present).await.map(drop)
    }
}

/// Prefix of the branches that hold the work of runs.
const BRANCH_PREFIX: &str = "trunkline";

/// Branch names in the order in which they are tried. Git allows no branch `trunkline/<run>` if there is a branch
/// `trunkline`.
fn names(run: &str) -> [String; 4] {
    [
        format!("{BRANCH_PREFIX}/{run}"),
        format!("{BRANCH_PREFIX}/{run}-work"),
        format!("{BRANCH_PREFIX}-{run}"),
        format!("{BRANCH_PREFIX}-runs/{run}"),
    ]
}
