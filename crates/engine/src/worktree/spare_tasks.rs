//! Background tasks of spare worktrees: each creates one, keeps it up to date and removes it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Worktrees;
use super::spare_inventory::{SpareLifetime, SpareRequest, SpareWorktree};
use crate::sandbox::untrusted::{self, MAX_GIT_FILE_BYTES};

/// Interval between checks whether a repository has new commits.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Outcome of the wait for a turn.
enum SpareOutcome {
    /// A turn uses the spare.
    Taken,
    /// The spare does not fit any turn, or is no longer needed.
    Remove(SpareWorktree),
    /// The repository has changed.
    Outdated(SpareWorktree),
}

impl Worktrees {
    /// Keeps at least `number` spare worktrees of a repository from now on.
    pub(crate) fn want_spares(self: &Arc<Self>, repo: PathBuf, number: usize) {
        if !self.spares.is_open() {
            return;
        }
        let (worktrees, generation) = (Arc::clone(self), self.spares.inventory().generation);
        self.spares.tracker.spawn(async move {
            let state = match worktrees.repository_state(&repo).await {
                Ok(state) => state,
                Err(failure) => return tracing::warn!("warm: {failure}"),
            };
            {
                let mut inventory = worktrees.spares.inventory();
                // The models were replaced meanwhile, so this request is outdated.
                if inventory.generation != generation {
                    return;
                }
                inventory.request(&state, &repo, number, Instant::now());
            }
            worktrees.refill_spares();
        });
    }

    /// Starts the creation of missing spare worktrees.
    pub(crate) fn refill_spares(self: &Arc<Self>) {
        for request in self.spares.missing() {
            let worktrees = Arc::clone(self);
            self.spares.tracker.spawn(async move { worktrees.keep_spare(request).await });
        }
    }

    /// Creates a spare, keeps it up to date until a turn takes it, and removes it when it is no longer needed.
    async fn keep_spare(self: Arc<Self>, request: SpareRequest) {
        let worktrees = &self;
        let creating = worktrees.spares.creating.acquire().await;
        let began = Instant::now();
        let mut before = stamps(&request);
        let created = if worktrees.spares.is_open() { Some(worktrees.prepare(&request.repo).await) } else { None };
        drop(creating);
        let took = matches!(created, Some(Ok(_))).then(|| began.elapsed());
        worktrees.spares.inventory().created(&request.own, took, Instant::now());
        let mut spare = match created {
            None => return,
            Some(Err(failure)) => {
                tracing::info!(repo = %request.repo.display(), "cannot create a spare worktree: {failure}");
                let pause = worktrees.spares.inventory().pause(&request.own);
                // There may be no later turn that triggers the next attempt.
                worktrees.spares.closing.run_until_cancelled(tokio::time::sleep(pause)).await;
                return self.refill_spares();
            }
            Some(Ok(spare)) => spare,
        };
        loop {
            let path = spare.tree.path.clone();
            let put = worktrees.spares.inventory().put(&request.own, spare);
            let (number, back) = match put {
                Ok(put) => put,
                Err(spare) => return worktrees.dispose(*spare).await,
            };
            tracing::debug!(path = %path.display(), ?took, "spare worktree is ready");
            spare = match self.wait_for_turn(&request, number, back, &before).await {
                SpareOutcome::Taken => return,
                SpareOutcome::Remove(spare) => return worktrees.dispose(spare).await,
                SpareOutcome::Outdated(spare) => {
                    before = stamps(&request);
                    match worktrees.update_to_head(spare).await {
                        Ok(spare) => spare,
                        Err((spare, failure)) => {
                            let path = spare.tree.path.display();
                            tracing::info!(%path, %failure, "replacing a spare worktree that cannot be updated");
                            worktrees.dispose(spare).await;
                            return self.refill_spares();
                        }
                    }
                }
            };
        }
    }

    /// Waits until a turn takes the spare, it expires, or the repository changes.
    async fn wait_for_turn(
        &self,
        request: &SpareRequest,
        number: u64,
        mut back: oneshot::Receiver<SpareWorktree>,
        before: &RepositoryStamps,
    ) -> SpareOutcome {
        let spares = &self.spares;
        let mut last: Option<RepositoryStamps> = None;
        loop {
            let closing = tokio::select! {
                biased;
                back = &mut back => return back.map_or(SpareOutcome::Taken, SpareOutcome::Remove),
                () = spares.closing.cancelled() => true,
                () = tokio::time::sleep(CHECK_INTERVAL) => false,
            };
            let now = stamps(request);
            // A rebase moves HEAD many times, so this waits until two checks in a row agree.
            let outdated = now != *before && last.as_ref() == Some(&now);
            last = Some(now);
            let (expired, withdrawn) = {
                // Checked and withdrawn under one lock: if one spare is surplus, only one task removes its own.
                let mut inventory = spares.inventory();
                let lifetime = inventory.lifetime(&request.own, Instant::now());
                let expired = closing || matches!(lifetime, SpareLifetime::Until(end) if end <= Instant::now());
                if !expired && !outdated {
                    continue;
                }
                (expired, inventory.withdraw(number))
            };
            return match withdrawn {
                Some(spare) if expired => SpareOutcome::Remove(spare),
                Some(spare) => SpareOutcome::Outdated(spare),
                // A turn is trying the spare right now.
                None => back.await.map_or(SpareOutcome::Taken, SpareOutcome::Remove),
            };
        }
    }
}

/// Metadata of the files that change with a repository's HEAD or configuration. A cheap hint that need not be exact.
type RepositoryStamps = Vec<Option<(u64, u64, i64, i64)>>;

fn stamps(SpareRequest { own, common, .. }: &SpareRequest) -> RepositoryStamps {
    let head = untrusted::read(&own.join("HEAD"), MAX_GIT_FILE_BYTES).unwrap_or_default();
    let head = String::from_utf8_lossy(&head);
    let branch = head.strip_prefix("ref: ").map(|name| common.join(name.trim_end()));
    let checkout_files = ["HEAD", "logs/HEAD", "config.worktree", "info/sparse-checkout"].map(|name| own.join(name));
    let common_files = ["packed-refs", "config", "info/attributes"].map(|name| common.join(name));
    let files = checkout_files.into_iter().chain(common_files).chain(branch);
    let stamp = |found: fs::Metadata| (found.ino(), found.len(), found.mtime(), found.mtime_nsec());
    files.map(|file| fs::metadata(file).ok().map(stamp)).collect()
}
