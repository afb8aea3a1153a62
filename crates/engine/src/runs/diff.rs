//! Changes of a run as a patch: from its commit, or from its worktree while it is running.

use trunkline_core::event::Receipt;
use trunkline_core::failure::Failure;
use trunkline_core::turn::ClientId;

use super::queries::RunQueryError;
use crate::engine::Engine;

/// Reason why there is no patch.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error("{0}")]
    Run(#[from] RunQueryError),
    #[error("{0}")]
    Nothing(&'static str),
    #[error("{0}")]
    Git(#[from] Failure),
}

impl Engine {
    /// Returns the patch from the start of a run to its present state.
    pub async fn diff(&self, owner: &ClientId, id: &str) -> Result<Vec<u8>, DiffError> {
        let worktrees = &self.shared.worktrees;
        let live = self.shared.runs.registry.find(id).filter(|live| live.owner == *owner);
        if let Some(worktree) = live.and_then(|live| live.worktree()) {
            return Ok(worktrees.diff(&worktree).await?);
        }
        let row = self.run(owner, id).await?;
        match row.workspace {
            Some(Receipt { base, commit: Some(commit), .. }) => {
                Ok(worktrees.diff_of(row.place.as_ref(), &base, &commit).await?)
            }
            Some(_) => Err(DiffError::Nothing("the run has not changed anything in its worktree")),
            None if row.state.is_over() => Err(DiffError::Nothing(
                "the run had no worktree, so its changes are in the repository itself (use worktree: true)",
            )),
            None => Err(DiffError::Nothing("the run has no worktree, or not yet")),
        }
    }
}
