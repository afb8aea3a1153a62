//! Taking a worktree down that holds nobody's work, and putting in order what dead gateways left behind.

use std::path::PathBuf;
use std::{fs, io};

use trunkline_core::event::{Receipt, SessionId};
use trunkline_core::failure::Failure;

use super::Worktrees;
use super::folder::Worktree;
use super::ledger::Standing;
use super::saving::{After, Finished};
use super::survey;
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

    /// Takes a worktree down that holds no work: git no longer knows of it, and its name is free. Its files are still to
    /// be deleted.
    pub(super) async fn clear(&self, worktree: &Worktree, standing: Standing) -> Option<Gone> {
        // A folder that was there before, and is not marked as ours, is not deleted with its contents.
        let all = standing == Standing::Saved || worktree.is_marked();
        let gone = Gone { path: worktree.aside(), run: worktree.run.clone() };
        self.ledger.forget_index(&worktree.path);
        // Moved aside in a moment, whatever it holds.
        let aside = all && fs::rename(&worktree.path, &gone.path).is_ok();
        if aside && self.unregister(worktree).await.is_ok() {
            return Some(gone);
        }
        // Git itself does not remove one that it had not finished making, or had begun to remove.
        let removed = match all {
            true => tokio::task::block_in_place(|| survey::remove(&worktree.path)),
            false => fs::remove_dir(&worktree.path),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(run = worktree.run, path = %worktree.path.display(), %error, "a worktree cannot be removed");
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
        let call = self.git.at(&worktree.repo).writing([worktree.common.join("worktrees")]);
        // Twice: a worktree that the agent has locked goes as well.
        call.run(&["worktree", "remove", "--force", "--force", "--", &path]).await?;
        Ok(())
    }

    /// Deletes what is left of a worktree. Until then a later gateway would do it.
    pub(crate) async fn delete(&self, gone: Option<Gone>) {
        let Some(Gone { path, run }) = gone else { return };
        let folder = path.clone();
        let deleted = tokio::task::spawn_blocking(move || survey::remove(&folder)).await;
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
        self.sweep_rooms();
        self.ledger.sweep_indexes(&self.base);
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
            let Finished { receipt, gone, recovered } =
                self.finish(&worktree, After::default(), std::future::pending()).await;
            self.delete(gone).await;
            match &receipt.branch {
                Some(branch) => tracing::info!(run = worktree.run, branch, "the work of a dead gateway's run is saved"),
                None if receipt.path.is_none() => tracing::info!(run = worktree.run, "a clean worktree is removed"),
                None => {}
            }
            if standing == Standing::Spare {
                continue;
            }
            let place = worktree.session.clone().map(|session| (session, worktree.place(&receipt)));
            for run in recovered {
                swept.push(Swept { run, receipt: receipt.clone(), place: None });
            }
            swept.push(Swept { run: worktree.run, receipt, place });
        }
        swept
    }
}
