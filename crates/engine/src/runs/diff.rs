//! What a run has changed, as a patch: of its commit, or of its worktree while it works.

use trunkline_core::event::Receipt;
use trunkline_core::failure::Failure;
use trunkline_core::turn::Owner;

use super::queries::NoRun;
use crate::engine::Engine;

/// Why there is no patch.
#[derive(Debug, thiserror::Error)]
pub enum NoDiff {
    #[error("{0}")]
    Run(#[from] NoRun),
    #[error("{0}")]
    Nothing(&'static str),
    #[error("{0}")]
    Git(#[from] Failure),
}

impl Engine {
    /// The patch from where a run began to where it is.
    pub async fn diff(&self, owner: &Owner, id: &str) -> Result<Vec<u8>, NoDiff> {
        let worktrees = &self.shared.worktrees;
        let live = self.shared.runs.registry.find(id).filter(|live| live.owner == *owner);
        if let Some(tree) = live.and_then(|live| live.tree()) {
            return Ok(worktrees.diff(&tree).await?);
        }
        let row = self.run(owner, id).await?;
        match row.workspace {
            Some(Receipt { base, commit: Some(commit), .. }) => {
                Ok(worktrees.diff_of(row.place.as_ref(), &base, &commit).await?)
            }
            Some(_) => Err(NoDiff::Nothing("the run has changed nothing in its worktree")),
            None if row.state.is_over() => Err(NoDiff::Nothing(
                "the run had no worktree of its own: what it changed is in the repository itself (worktree: true)",
            )),
            None => Err(NoDiff::Nothing("the run has no worktree of its own, or not yet")),
        }
    }
}
