//! Resources of an attempt: worktree, files, slot and session. They are released however the attempt ends.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;
use trunkline_core::event::{Receipt, SessionId};
use trunkline_core::model::Model;

use crate::admission::Permit;
use crate::attempt::scratch::Scratch;
use crate::runs;
use crate::runs::live::ActiveRun;
use crate::sandbox;
use crate::session;
use crate::shared::Shared;
use crate::worktree::{LeftoverFiles, SavedWorktree, Worktree, WorktreePolicy};

/// Resources of an attempt. When dropped, its worktree is saved, its files are removed and its slot is freed.
pub(crate) struct AttemptResources {
    pub(crate) shared: Arc<Shared>,
    pub(crate) worktree: Option<(Worktree, WorktreePolicy)>,
    pub(crate) scratch: Scratch,
    /// Whether a process has run in the worktree. Before that there is nothing to save.
    pub(crate) started: bool,
    /// Our id of the session that the attempt belongs to.
    session: Option<SessionId>,
    /// The run of the attempt. `None` for a health probe.
    run: Option<Arc<ActiveRun>>,
    /// Cancelled when the client has disconnected.
    cancelled: CancellationToken,
    rights: Option<Rights>,
}

/// Time that an answer waits for the deletion of its worktree. The deletion continues in the background.
const DELETE_WAIT: Duration = Duration::from_millis(25);

/// Slot, session and registration, which others wait for. Released last.
struct Rights {
    run: Option<TaskTrackerToken>,
    turn: Option<Arc<session::SessionGuard>>,
    permit: Option<Permit>,
}

impl AttemptResources {
    pub(crate) fn new(
        shared: Arc<Shared>,
        permit: Permit,
        session: Option<(SessionId, Arc<session::SessionGuard>)>,
        scratch: Scratch,
        run: &str,
    ) -> Self {
        let (session, turn) = session.unzip();
        let run = shared.runs.registry.find(run);
        let rights = Some(Rights { run: run.as_ref().map(|run| run.hold()), turn, permit: Some(permit) });
        let cancelled = CancellationToken::new();
        Self { shared, worktree: None, scratch, started: false, session, run, cancelled, rights }
    }

    /// Working directory of the attempt.
    pub(crate) fn cwd(&self, model: &Model) -> PathBuf {
        self.worktree.as_ref().map_or(model.repo.as_path(), |(worktree, _)| &worktree.cwd).to_owned()
    }

    /// Paths of the workspace that the attempt may write, if its permissions allow writing.
    pub(crate) fn workspace(&self, model: &Model) -> Vec<PathBuf> {
        self.worktree.as_ref().map_or_else(|| sandbox::checkout(&model.repo), |(worktree, _)| worktree.writable_paths())
    }

    /// Adds the worktree in which the attempt works.
    pub(crate) fn work_in(&mut self, worktree: Worktree, after: WorktreePolicy) {
        if let Some(run) = &self.run {
            run.set_worktree(Some(worktree.clone()));
        }
        self.worktree = Some((worktree, after));
    }

    /// Gives back the slot of an attempt that waits for its client, and lets its run end. The session stays locked.
    pub(crate) fn park(&mut self) {
        if let Some(rights) = &mut self.rights {
            (rights.run, rights.permit) = (None, None);
        }
    }

    /// Continues in another run, with another slot.
    pub(crate) fn resume(&mut self, run: &str, permit: Permit) {
        self.run = self.shared.runs.registry.find(run);
        if let Some(rights) = &mut self.rights {
            (rights.run, rights.permit) = (self.run.as_ref().map(|run| run.hold()), Some(permit));
        }
        if let (Some(run), Some((worktree, _))) = (&self.run, &self.worktree) {
            run.set_worktree(Some(worktree.clone()));
        }
    }

    /// Saves and removes the worktree, if there is one, and records where its session continues.
    pub(crate) async fn save_worktree(&mut self) -> Option<Receipt> {
        let (worktree, after) = self.worktree.take()?;
        self.shared.worktrees.refill_spares();
        let finished = finish(&self.shared, &worktree, after, self.run.as_deref(), &self.cancelled).await;
        if let Some(session) = &self.session {
            self.shared.sessions.places.remember(session, &worktree.place(&finished.receipt));
        }
        self.delete(finished.leftovers).await;
        Some(finished.receipt)
    }

    /// Cancelled when the client has disconnected: a save then has only a short time left.
    pub(crate) fn cancelled(&self) -> CancellationToken {
        self.cancelled.clone()
    }
}

impl AttemptResources {
    /// Deletes the files of a worktree that git no longer lists. The answer waits for at most [`DELETE_WAIT`]. The slot and the run
    /// are released after the deletion, the session before it.
    async fn delete(&mut self, gone: Option<LeftoverFiles>) {
        let (shared, mut rights) = (Arc::clone(&self.shared), self.rights.take());
        if let Some(rights) = &mut rights {
            rights.turn = None;
        }
        let deleting = self.shared.tasks.tracker.spawn(async move {
            shared.worktrees.delete(gone).await;
            drop(rights);
        });
        // The deletion continues after the timeout.
        let _ = tokio::time::timeout(DELETE_WAIT, deleting).await;
    }
}

impl Drop for AttemptResources {
    /// An attempt that was dropped before its end, or never started: its worktree is saved all the same.
    fn drop(&mut self) {
        if let Some((worktree, after)) = self.worktree.take() {
            let (shared, rights, run) = (Arc::clone(&self.shared), self.rights.take(), self.run.take());
            let after = WorktreePolicy { keep: after.keep && self.started, ..after };
            let (session, cancelled) = (self.session.take(), self.cancelled.clone());
            cancelled.cancel();
            self.shared.tasks.tracker.spawn(async move {
                let finished = finish(&shared, &worktree, after, run.as_deref(), &cancelled).await;
                if let Some(session) = session.filter(|_| finished.receipt.path.is_some()) {
                    shared.sessions.places.remember(&session, &worktree.place(&finished.receipt));
                }
                shared.worktrees.delete(finished.leftovers).await;
                // The next turn of the session works in the same folder, so it starts only now.
                drop(rights);
            });
        }
    }
}

/// Saves a worktree and records the receipt with its run.
async fn finish(
    shared: &Shared,
    worktree: &Worktree,
    after: WorktreePolicy,
    run: Option<&ActiveRun>,
    cancelled: &CancellationToken,
) -> SavedWorktree {
    let stopping = async {
        let stopped = async {
            match run {
                Some(run) => run.stopped().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stopped => {}
            () = cancelled.cancelled() => {}
            () = shared.tasks.draining.cancelled() => {}
        }
    };
    let finished = shared.worktrees.finish(worktree, after, stopping).await;
    for earlier in &finished.recovered {
        shared.store_writer.note_workspace(runs::of_attempt(earlier), &finished.receipt);
    }
    if let Some(run) = run {
        shared.store_writer.note_workspace(&run.id, &finished.receipt);
        run.set_worktree(None);
    }
    finished
}
