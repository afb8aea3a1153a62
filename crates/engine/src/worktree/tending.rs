//! Who makes spare worktrees, waits with them, and takes them down: a task for each, off every turn's path.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Worktrees;
use super::shelf::{Order, Spare, Stay};
use crate::sandbox::untrusted::{self, MAX_GIT_FILE_BYTES};

/// How often it is looked whether a repository has gone on.
const LOOK: Duration = Duration::from_secs(2);

/// How the wait with a spare ended.
enum Parting {
    Taken,
    /// Unfit, or wanted by nobody.
    Over(Spare),
    /// The repository has gone on.
    Behind(Spare),
}

impl Worktrees {
    /// Has so many spare worktrees of a repository, from now on.
    pub(crate) fn want_spares(self: &Arc<Self>, repo: PathBuf, number: usize) {
        if !self.spares.is_open() {
            return;
        }
        let (worktrees, era) = (Arc::clone(self), self.spares.shelf().era);
        self.spares.tracker.spawn(async move {
            let ground = match worktrees.ground(&repo).await {
                Ok(ground) => ground,
                Err(failure) => return tracing::warn!("warm: {failure}"),
            };
            {
                let mut shelf = worktrees.spares.shelf();
                // Other models have come meanwhile: what this one wanted is of yesterday.
                if shelf.era != era {
                    return;
                }
                shelf.fix(&ground, &repo, number, Instant::now());
            }
            worktrees.refill_spares();
        });
    }

    /// Has those spare worktrees made that are wanted.
    pub(crate) fn refill_spares(self: &Arc<Self>) {
        for order in self.spares.wanted() {
            let worktrees = Arc::clone(self);
            self.spares.tracker.spawn(async move { worktrees.tend(order).await });
        }
    }

    async fn tend(self: Arc<Self>, order: Order) {
        let worktrees = &self;
        let turn = worktrees.spares.turnstile.acquire().await;
        let began = Instant::now();
        let mut before = marks(&order);
        let made = if worktrees.spares.is_open() { Some(worktrees.prepare(&order.repo).await) } else { None };
        drop(turn);
        let took = matches!(made, Some(Ok(_))).then(|| began.elapsed());
        worktrees.spares.shelf().came(&order.own, took, Instant::now());
        let mut spare = match made {
            None => return,
            Some(Err(failure)) => {
                tracing::info!(repo = %order.repo.display(), "no worktree could be made ready: {failure}");
                let pause = worktrees.spares.shelf().pause(&order.own);
                // Nobody may come by who would have it made.
                worktrees.spares.closing.run_until_cancelled(tokio::time::sleep(pause)).await;
                return self.refill_spares();
            }
            Some(Ok(spare)) => spare,
        };
        loop {
            let path = spare.tree.path.clone();
            let put = worktrees.spares.shelf().put(&order.own, spare);
            let (number, back) = match put {
                Ok(put) => put,
                Err(spare) => return worktrees.dispose(*spare).await,
            };
            tracing::debug!(path = %path.display(), ?took, "a worktree is ready");
            spare = match self.wait_with(&order, number, back, &before).await {
                Parting::Taken => return,
                Parting::Over(spare) => return worktrees.dispose(spare).await,
                Parting::Behind(spare) => {
                    before = marks(&order);
                    match worktrees.catch_up(spare).await {
                        Ok(spare) => spare,
                        Err((spare, failure)) => {
                            tracing::info!(path = %spare.tree.path.display(), %failure, "a spare worktree is made anew");
                            worktrees.dispose(spare).await;
                            return self.refill_spares();
                        }
                    }
                }
            };
        }
    }

    async fn wait_with(
        &self,
        order: &Order,
        number: u64,
        mut back: oneshot::Receiver<Spare>,
        before: &Marks,
    ) -> Parting {
        let spares = &self.spares;
        let mut last: Option<Marks> = None;
        loop {
            let over = tokio::select! {
                biased;
                back = &mut back => return back.map_or(Parting::Taken, Parting::Over),
                () = spares.closing.cancelled() => true,
                () = tokio::time::sleep(LOOK) => false,
            };
            let now = marks(order);
            // A rebase moves it many times: one waits until it has come to rest.
            let behind = now != *before && last.as_ref() == Some(&now);
            last = Some(now);
            let (over, withdrawn) = {
                // Of two that are one too many only one goes.
                let mut shelf = spares.shelf();
                let stay = shelf.stay(&order.own, Instant::now());
                let over = over || matches!(stay, Stay::Until(end) if end <= Instant::now());
                if !over && !behind {
                    continue;
                }
                (over, shelf.withdraw(number))
            };
            return match withdrawn {
                Some(spare) if over => Parting::Over(spare),
                Some(spare) => Parting::Behind(spare),
                // Somebody has it in hand this very moment.
                None => back.await.map_or(Parting::Taken, Parting::Over),
            };
        }
    }
}

/// The files that change when a repository goes on: for a quick look, not to be relied on.
type Marks = Vec<Option<(u64, u64, i64, i64)>>;

fn marks(Order { own, common, .. }: &Order) -> Marks {
    let head = untrusted::read(&own.join("HEAD"), MAX_GIT_FILE_BYTES).unwrap_or_default();
    let head = String::from_utf8_lossy(&head);
    let branch = head.strip_prefix("ref: ").map(|name| common.join(name.trim_end()));
    let of_checkout = ["HEAD", "logs/HEAD", "config.worktree", "info/sparse-checkout"].map(|name| own.join(name));
    let of_all = ["packed-refs", "config", "info/attributes"].map(|name| common.join(name));
    let files = of_checkout.into_iter().chain(of_all).chain(branch);
    let mark = |found: fs::Metadata| (found.ino(), found.len(), found.mtime(), found.mtime_nsec());
    files.map(|file| fs::metadata(file).ok().map(mark)).collect()
}
