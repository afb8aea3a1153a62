//! Taking a worktree down that holds nobody's work, and putting in order what dead gateways left behind.

use std::{fs, io};

use trunkline_core::event::{Receipt, SessionId};
use trunkline_core::failure::Failure;

use super::ledger::Standing;
use super::saving::After;
use super::{Worktree, Worktrees};
use crate::session::Place;

/// A worktree of a dead gateway, and what it held.
pub(crate) struct Swept {
    /// The attempt.
    pub(crate) run: String,
    pub(crate) receipt: Receipt,
    /// Where the conversation it was part of goes on.
    pub(crate) place: Option<(SessionId, Place)>,
}

impl Worktrees {
    async fn remove(&self, worktree: &Worktree) -> Result<(), Failure> {
        let lock = self.lock(&worktree.common).await?;
        let path = worktree.path.to_string_lossy();
        self.git.run(&worktree.repo, &["worktree", "remove", "--force", &path]).await?;
        drop(lock);
        self.ledger.forget(&worktree.run);
        Ok(())
    }

    /// Takes down a worktree that holds nobody's work. Git itself does not remove one that it had not finished making, or
    /// had begun to remove.
    pub(super) async fn discard(&self, worktree: &Worktree, standing: Standing) {
        if worktree.path.exists() && self.remove(worktree).await.is_ok() {
            return;
        }
        // What was there before the worktree came to be, and is not marked as one, is somebody's.
        let all = standing == Standing::Saved || worktree.is_marked();
        let removed = if all { fs::remove_dir_all(&worktree.path) } else { fs::remove_dir(&worktree.path) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(run = worktree.run, path = %worktree.path.display(), %error, "it cannot be removed");
            }
            Ok(()) | Err(_) => {
                worktree.remove_registration();
                self.ledger.forget(&worktree.run);
            }
        }
    }

    /// Takes care of what gateways that died left behind: commits it, removes it. Touches nothing it did not make.
    pub(crate) async fn sweep(&self) -> Vec<Swept> {
        let _sweeping = self.sweeping.lock().await;
        let mut swept = Vec::new();
        for entry in self.ledger.abandoned() {
            let standing = entry.standing();
            let worktree = entry.worktree();
            tracing::info!(run = worktree.run, path = %worktree.path.display(), "a worktree of a dead gateway");
            // One that was never filled in, or is half gone, looks as if its files had been deleted.
            if standing != Standing::InUse || !worktree.path.exists() {
                self.discard(&worktree, standing).await;
                continue;
            }
            match self.finish(&worktree, After::default()).await {
                Ok(receipt) => {
                    match &receipt.branch {
                        Some(branch) => tracing::info!(run = worktree.run, branch, "its work is kept"),
                        None => tracing::info!(run = worktree.run, "nothing had changed; it is removed"),
                    }
                    let place = worktree.session.clone().map(|session| (session, worktree.place(&receipt)));
                    swept.push(Swept { run: worktree.run, receipt, place });
                }
                Err(failure) => tracing::warn!(run = worktree.run, %failure, "it stays where it is"),
            }
        }
        swept
    }
}
