//! Taking a worktree down that holds nobody's work, and putting in order what dead gateways left behind.

use std::path::PathBuf;
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

/// What is left of a worktree: files that nobody asks for.
pub(crate) struct Gone {
    path: PathBuf,
    run: String,
}

impl Worktrees {
    /// Takes a worktree down that holds nobody's work, to the last file.
    pub(super) async fn discard(&self, worktree: &Worktree, standing: Standing) {
        let gone = self.clear(worktree, standing).await;
        self.delete(gone).await;
    }

    /// Takes a worktree down that holds nobody's work: git knows nothing of it any more, and its place is free. What is left
    /// is to be deleted.
    pub(super) async fn clear(&self, worktree: &Worktree, standing: Standing) -> Option<Gone> {
        // What was there before the worktree came to be, and is not marked as one, is somebody's.
        let all = standing == Standing::Saved || worktree.is_marked();
        let gone = Gone { path: worktree.aside(), run: worktree.run.clone() };
        // Moved aside in a moment, whatever it holds.
        let aside = all && fs::rename(&worktree.path, &gone.path).is_ok();
        if (aside || worktree.path.exists()) && self.unregister(worktree).await.is_ok() {
            return Some(gone);
        }
        // Git itself does not remove one that it had not finished making, or had begun to remove.
        let removed = if all { fs::remove_dir_all(&worktree.path) } else { fs::remove_dir(&worktree.path) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(run = worktree.run, path = %worktree.path.display(), %error, "it cannot be removed");
                None
            }
            Ok(()) | Err(_) => {
                worktree.remove_registration();
                Some(gone)
            }
        }
    }

    async fn unregister(&self, worktree: &Worktree) -> Result<(), Failure> {
        let _lock = self.lock(&worktree.common).await?;
        let path = worktree.path.to_string_lossy();
        self.git.run(&worktree.repo, &["worktree", "remove", "--force", &path]).await?;
        Ok(())
    }

    /// Deletes what is left of a worktree. Until then a later gateway would do it.
    pub(crate) async fn delete(&self, gone: Option<Gone>) {
        let Some(Gone { path, run }) = gone else { return };
        let folder = path.clone();
        let deleted = tokio::task::spawn_blocking(move || fs::remove_dir_all(folder)).await;
        match deleted.map_err(io::Error::other).and_then(|deleted| deleted) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(run, path = %path.display(), %error, "it cannot be removed");
            }
            Ok(()) | Err(_) => self.ledger.forget(&run),
        }
    }

    /// Takes care of what gateways that died left behind: commits it, removes it. Touches nothing it did not make.
    pub(crate) async fn sweep(&self) -> Vec<Swept> {
        let _sweeping = self.sweeping.lock().await;
        self.sweep_patches();
        let mut swept = Vec::new();
        for entry in self.ledger.abandoned() {
            let standing = entry.standing();
            let worktree = entry.worktree();
            tracing::info!(run = worktree.run, path = %worktree.path.display(), "a worktree of a dead gateway");
            // One that was never filled in, or is half gone, looks as if its files had been deleted.
            let whole = match standing {
                Standing::InUse | Standing::Spare => worktree.path.exists(),
                Standing::Unmade | Standing::Saved => false,
            };
            if !whole {
                self.discard(&worktree, standing).await;
                continue;
            }
            match self.finish(&worktree, After::default()).await {
                Ok((receipt, gone)) => {
                    self.delete(gone).await;
                    match &receipt.branch {
                        Some(branch) => tracing::info!(run = worktree.run, branch, "its work is kept"),
                        None => tracing::info!(run = worktree.run, "nothing had changed; it is removed"),
                    }
                    if standing == Standing::Spare {
                        continue;
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
