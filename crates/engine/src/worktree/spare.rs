//! Spare worktrees: created ahead of their turn, so that the turn does not wait for the checkout.
//!
//! A spare is an ordinary worktree without a run. A turn that takes one checks that it is unchanged, updates it to the
//! turn's commit, and renames it. All of that costs less than writing the files. If a spare does not fit, the turn
//! creates a new worktree instead.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;
use trunkline_core::failure::{Category, Failure};

use super::Worktrees;
use super::fingerprint::fingerprint;
use super::folder::Worktree;
use super::ledger::{WorktreeRecord, WorktreeState};
use super::repository_state::{CheckoutRules, RepositoryState};
use super::saving::{SavedWorktree, WorktreePolicy};
use super::spare_inventory::SpareWorktree;

/// Minimum free space for the creation of a spare worktree. On a small disk, half of its size.
const MIN_FREE_BYTES: u64 = 2 << 30;

/// Minimum number of free inodes, on file systems that limit them.
const MIN_FREE_INODES: u64 = 200_000;

impl Worktrees {
    /// Keeps spare worktrees from now on, at most `max`. Only the first call has an effect.
    pub(crate) fn keep_spares(&self, max: usize) {
        let _ = self.spares.max.set(max);
    }

    /// Clears the numbers that models requested: the models are about to be replaced.
    pub(crate) fn clear_requested_spares(&self) {
        self.spares.inventory().clear_requested();
    }

    /// Removes all spare worktrees, and creates no more.
    pub(crate) fn retire_spares(&self) {
        self.spares.closing.cancel();
    }

    /// Creates a spare worktree at the HEAD of a repository.
    pub(super) async fn prepare(&self, repo: &Path) -> Result<SpareWorktree, Failure> {
        let base = self.check_base()?;
        self.check_disk_space()?;
        let (repository, rules) = self.state_and_rules(repo).await?;
        let tree = Worktree::spare(&base, repo, &repository);
        self.ledger.write(&WorktreeRecord::of(&tree, WorktreeState::Incomplete))?;
        match self.fill(&tree, rules).await {
            Ok(fingerprint) => Ok(SpareWorktree { tree, rules, fingerprint, state: WorktreeState::Spare }),
            Err(failure) => {
                self.discard(&tree, WorktreeState::Incomplete).await;
                Err(failure)
            }
        }
    }

    async fn fill(&self, tree: &Worktree, rules: CheckoutRules) -> Result<blake3::Hash, Failure> {
        self.register(tree).await?;
        let checkout = async {
            self.check_out(tree).await?;
            // Git re-reads every file that is not at least a second older than the index. Refreshing the index a second
            // later spares the turn that cost.
            tokio::time::sleep(until_the_next_second()).await;
            // Without the refresh, git is only slower.
            let _ = self.git_in(tree).run(&["update-index", "-q", "--refresh"]).await;
            self.ledger.keep_index(tree, &tree.registration.join("index"));
            self.check_disk_space()?;
            Ok(())
        };
        let shutting_down = || Err(Failure::new(Category::Cancelled, "the gateway is shutting down"));
        self.spares.closing.run_until_cancelled(checkout).await.unwrap_or_else(shutting_down)?;
        let (_, now) = self.state_and_rules(&tree.repo).await?;
        if now != rules {
            return Err(Failure::new(Category::Configuration, "git's configuration changed during the checkout"));
        }
        let fingerprint = self.take_fingerprint(tree).await?;
        self.ledger.write(&WorktreeRecord::of(tree, WorktreeState::Spare))?;
        Ok(fingerprint)
    }

    pub(super) async fn state_and_rules(&self, repo: &Path) -> Result<(RepositoryState, CheckoutRules), Failure> {
        let (repository, settings) = tokio::join!(self.repository_state(repo), self.git_config(repo));
        let repository = repository?;
        let rules = self.checkout_rules(&repository, &settings?);
        Ok((repository, rules))
    }

    async fn take_fingerprint(&self, tree: &Worktree) -> Result<blake3::Hash, Failure> {
        let (path, registration) = (tree.path.clone(), tree.registration.clone());
        let taken = tokio::task::spawn_blocking(move || fingerprint(&path, &registration)).await;
        taken.map_err(io::Error::other).and_then(|taken| taken).map_err(|error| unfit(&error.to_string()))
    }

    /// Turns a fitting spare into this worktree. Returns false if there is none.
    pub(super) async fn take(
        &self,
        worktree: &mut Worktree,
        repository: &RepositoryState,
        rules: &CheckoutRules,
        cancelled: &CancellationToken,
    ) -> bool {
        while !cancelled.is_cancelled() {
            let ready = self.spares.inventory().pop(&repository.own, rules, &worktree.base);
            let Some(mut ready) = ready else { return false };
            let taken = cancelled.run_until_cancelled(self.hand_over(&mut ready.spare, worktree)).await;
            match taken.unwrap_or_else(|| Err(unfit("the turn was cancelled"))) {
                Ok(()) => return true,
                Err(failure) => {
                    tracing::info!(path = %ready.spare.tree.path.display(), %failure, "cannot use a spare worktree");
                    ready.give_back();
                }
            }
        }
        false
    }

    async fn hand_over(&self, spare: &mut SpareWorktree, worktree: &mut Worktree) -> Result<(), Failure> {
        self.bring_to(spare, &worktree.base).await?;
        let registration = std::mem::replace(&mut worktree.registration, spare.tree.registration.clone());
        // If the gateway is killed at any point, one of the two records finds the folder, and neither counts it as
        // work.
        let moved = self.ledger.write(&WorktreeRecord::of(worktree, WorktreeState::Incomplete)).and_then(|()| {
            fs::rename(&spare.tree.path, &worktree.path).map_err(|error| unfit(&error.to_string()))?;
            worktree.update_registration().inspect_err(|_| {
                // Moves it back for its task to remove.
                let _ = fs::rename(&worktree.path, &spare.tree.path);
            })
        });
        match moved {
            Ok(()) => {
                self.ledger.move_index(&spare.tree.path, &worktree.path);
                self.ledger.forget(&spare.tree.run);
            }
            Err(_) => worktree.registration = registration,
        }
        moved
    }

    /// Updates a spare to a commit, if it is unchanged.
    pub(super) async fn bring_to(&self, spare: &mut SpareWorktree, commit: &str) -> Result<(), Failure> {
        let (current, repo) = (spare.tree.base == commit, &spare.tree.repo);
        let differ =
            async { if current { Ok(false) } else { self.attributes_differ(repo, &spare.tree.base, commit).await } };
        let (fingerprint, differ) = tokio::try_join!(self.take_fingerprint(&spare.tree), differ)?;
        if fingerprint != spare.fingerprint {
            return Err(unfit("it was changed"));
        }
        if differ {
            return Err(unfit("its files were written with other attributes"));
        }
        if current {
            return Ok(());
        }
        spare.state = WorktreeState::Incomplete;
        self.ledger.write(&WorktreeRecord::of(&spare.tree, WorktreeState::Incomplete))?;
        // Unlike `reset`, this only touches files that differ between the two commits.
        self.git_in(&spare.tree).run(&["read-tree", "-m", "-u", &spare.tree.base, commit]).await?;
        self.git_in(&spare.tree).run(&["update-ref", "--no-deref", "HEAD", commit]).await?;
        self.ledger.keep_index(&spare.tree, &spare.tree.registration.join("index"));
        commit.clone_into(&mut spare.tree.base);
        Ok(())
    }

    /// Updates a spare to the present HEAD of its repository.
    pub(super) async fn update_to_head(
        &self,
        mut spare: SpareWorktree,
    ) -> Result<SpareWorktree, (SpareWorktree, Failure)> {
        let updated = async {
            let (repository, rules) = self.state_and_rules(&spare.tree.repo).await?;
            if rules != spare.rules {
                return Err(unfit("git's configuration has changed"));
            }
            self.bring_to(&mut spare, &repository.head).await?;
            spare.fingerprint = self.take_fingerprint(&spare.tree).await?;
            self.ledger.write(&WorktreeRecord::of(&spare.tree, WorktreeState::Spare))?;
            spare.state = WorktreeState::Spare;
            Ok(())
        };
        match updated.await {
            Ok(()) => Ok(spare),
            Err(failure) => Err((spare, failure)),
        }
    }

    /// Removes a spare. Changes in it are saved like the work of a run.
    pub(super) async fn dispose(&self, spare: SpareWorktree) {
        let SpareWorktree { tree, state, .. } = spare;
        if state == WorktreeState::Incomplete {
            return self.discard(&tree, state).await;
        }
        let stopping = self.spares.closing.cancelled();
        let SavedWorktree { receipt, leftovers, .. } = self.finish(&tree, WorktreePolicy::default(), stopping).await;
        if let Some(branch) = receipt.branch {
            tracing::warn!(branch, "a spare worktree was changed; its changes are saved on a branch");
        }
        self.delete(leftovers).await;
    }

    fn check_disk_space(&self) -> Result<(), Failure> {
        let Ok(disk) = rustix::fs::statvfs(&self.base) else { return Ok(()) };
        let min_bytes = MIN_FREE_BYTES.min(disk.f_blocks.saturating_mul(disk.f_frsize) / 2);
        let min_inodes = MIN_FREE_INODES.min(disk.f_files / 2);
        if disk.f_bavail.saturating_mul(disk.f_frsize) >= min_bytes && disk.f_favail >= min_inodes {
            return Ok(());
        }
        Err(Failure::new(Category::Configuration, format!("low disk space in {}", self.base.display())))
    }
}

impl Worktree {
    fn spare(base: &Path, repo: &Path, repository: &RepositoryState) -> Self {
        let run = format!("spare-{}", uuid::Uuid::now_v7());
        let path: PathBuf = base.join(&run);
        Self {
            cwd: path.clone(),
            registration: Self::default_registration(&repository.common, &path),
            path,
            run,
            repo: repo.to_owned(),
            common: repository.common.clone(),
            base: repository.head.clone(),
            session: None,
        }
    }
}

fn unfit(reason: &str) -> Failure {
    Failure::new(Category::Configuration, reason)
}

fn until_the_next_second() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis(1020) - Duration::from_millis(now.subsec_millis().into())
}
