//! Removal of worktrees, and the sweep of worktrees that dead gateways left behind.

use std::path::PathBuf;
use std::{fs, io};

use trunkline_core::event::{Receipt, SessionId};
use trunkline_core::failure::Failure;

use super::Worktrees;
use super::folder::Worktree;
use super::ledger::WorktreeState;
use super::saving::{SavedWorktree, WorktreePolicy};
use super::survey;
use crate::session::SessionPlace;

/// A worktree of a dead gateway, after it was saved.
pub(crate) struct SweptWorktree {
    /// Id of the attempt.
    pub(crate) run: String,
    pub(crate) receipt: Receipt,
    /// The session of the attempt, and where that session continues.
    pub(crate) place: Option<(SessionId, SessionPlace)>,
}

/// Files of a removed worktree that are still to be deleted.
pub(crate) struct LeftoverFiles {
    path: PathBuf,
    run: String,
}

impl Worktrees {
    /// Removes a worktree that holds no unsaved work, including its files.
    pub(super) async fn discard(&self, worktree: &Worktree, state: WorktreeState) {
        let leftovers = self.clear(worktree, state).await;
        self.delete(leftovers).await;
    }

    /// Unregisters a worktree that holds no unsaved work and frees its path. The files that are returned are still to
    /// be deleted.
    pub(super) async fn clear(&self, worktree: &Worktree, state: WorktreeState) -> Option<LeftoverFiles> {
        // A folder that existed before, and does not name this worktree, is not deleted with its contents.
        let all = state == WorktreeState::Saved || worktree.has_git_file();
        let leftovers = LeftoverFiles { path: worktree.aside_path(), run: worktree.run.clone() };
        self.ledger.forget_index(&worktree.path);
        // A rename takes the same short time whatever the size of the folder.
        let aside = all && fs::rename(&worktree.path, &leftovers.path).is_ok();
        if aside && self.unregister(worktree).await.is_ok() {
            return Some(leftovers);
        }
        // Git refuses to remove a worktree that it has only partly created or removed.
        let removed = match all {
            true => tokio::task::block_in_place(|| survey::remove(&worktree.path)),
            false => fs::remove_dir(&worktree.path),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(run = worktree.run, path = %worktree.path.display(), %error, "cannot remove a worktree");
                None
            }
            Ok(()) | Err(_) => {
                worktree.remove_registration();
                Some(leftovers)
            }
        }
    }

    async fn unregister(&self, worktree: &Worktree) -> Result<(), Failure> {
        let _lock = self.lock(&worktree.common).await?;
        let path = worktree.path.to_string_lossy();
        let call = self.git.at(&worktree.repo).writing([worktree.common.join("worktrees")]);
        // Given twice, `--force` also removes a worktree that the agent has locked.
        call.run(&["worktree", "remove", "--force", "--force", "--", &path]).await?;
        Ok(())
    }

    /// Deletes the files of a removed worktree. If this gateway dies before that, a later one deletes them.
    pub(crate) async fn delete(&self, leftovers: Option<LeftoverFiles>) {
        let Some(LeftoverFiles { path, run }) = leftovers else { return };
        let folder = path.clone();
        let deleted = tokio::task::spawn_blocking(move || survey::remove(&folder)).await;
        match deleted.map_err(io::Error::other).and_then(|deleted| deleted) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(run, path = %path.display(), %error, "cannot delete the files of a removed worktree");
            }
            Ok(()) | Err(_) => self.ledger.forget(&run),
        }
    }

    /// Saves and removes the worktrees of dead gateways. Touches only worktrees that are in the ledger.
    pub(crate) async fn sweep(&self) -> Vec<SweptWorktree> {
        let _sweeping = self.sweeping.lock().await;
        self.sweep_private_git_dirs();
        self.ledger.sweep_indexes(&self.base);
        let mut swept = Vec::new();
        for record in self.ledger.abandoned() {
            let state = record.state();
            let worktree = record.worktree();
            tracing::info!(run = worktree.run, path = %worktree.path.display(), "found a worktree of a dead gateway");
            // In a worktree that is incomplete or partly removed, missing files would look like deletions by the agent.
            let complete = match state {
                WorktreeState::InUse | WorktreeState::Spare => worktree.path.exists(),
                WorktreeState::Incomplete | WorktreeState::Saved => false,
            };
            if !complete {
                self.discard(&worktree, state).await;
                continue;
            }
            let SavedWorktree { receipt, leftovers, recovered } =
                self.finish(&worktree, WorktreePolicy::default(), std::future::pending()).await;
            self.delete(leftovers).await;
            match &receipt.branch {
                Some(branch) => tracing::info!(run = worktree.run, branch, "saved the work of a dead gateway's run"),
                None if receipt.path.is_none() => tracing::info!(run = worktree.run, "removed a clean worktree"),
                None => {}
            }
            if state == WorktreeState::Spare {
                continue;
            }
            let place = worktree.session.clone().map(|session| (session, worktree.place(&receipt)));
            for run in recovered {
                swept.push(SweptWorktree { run, receipt: receipt.clone(), place: None });
            }
            swept.push(SweptWorktree { run: worktree.run, receipt, place });
        }
        swept
    }
}
