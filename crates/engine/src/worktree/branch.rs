//! The branch that keeps the work of a run: `trunkline/<run>`, or the nearest free name.

use trunkline_core::failure::{Category, Failure};

use super::Worktrees;
use super::folder::Worktree;
use super::room::Room;

impl Worktrees {
    /// Puts a commit on a branch of its own, and returns the branch's name. A branch that is there already is never moved
    /// back or aside: another name is taken.
    pub(super) async fn put_on_branch(
        &self,
        room: &Room,
        worktree: &Worktree,
        commit: &str,
    ) -> Result<String, Failure> {
        let mut first = None;
        for branch in names(&worktree.run) {
            let reference = format!("refs/heads/{branch}");
            match self.claim(room, worktree, &reference, commit).await {
                Ok(()) => return Ok(branch),
                Err(failure) => _ = first.get_or_insert(failure),
            }
        }
        let nothing_tried = || Failure::new(Category::Server, "no branch name");
        Err(first.unwrap_or_else(nothing_tried))
    }

    /// Creates the reference, or takes it over if it is where an earlier save left it.
    async fn claim(&self, room: &Room, worktree: &Worktree, reference: &str, commit: &str) -> Result<(), Failure> {
        let update = |old: String| async move {
            let call = self.in_room(room, worktree).writing(worktree.reference_stores());
            call.run(&["update-ref", reference, commit, &old]).await
        };
        let zero = "0".repeat(commit.len());
        let Err(taken) = update(zero).await else { return Ok(()) };
        let there = ["rev-parse", "--verify", "--quiet", "--end-of-options", reference];
        let Ok(there) = self.in_room(room, worktree).line(&there).await else { return Err(taken) };
        if there == commit {
            return Ok(());
        }
        let ancestor = ["merge-base", "--is-ancestor", &there, commit];
        if self.in_room(room, worktree).run(&ancestor).await.is_err() {
            return Err(taken);
        }
        update(there).await.map(drop)
    }
}

/// Names in the order in which they are tried. A branch named `trunkline` leaves no room for `trunkline/<run>`.
fn names(run: &str) -> [String; 4] {
    [
        format!("trunkline/{run}"),
        format!("trunkline/{run}-work"),
        format!("trunkline-{run}"),
        format!("trunkline-runs/{run}"),
    ]
}
