//! What an attempt holds and must give back, however it ends.

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
use crate::worktree::{After, Finished, Gone, Worktree};

/// What a run holds and must give back: its worktree in order, its files removed, its slot freed.
pub(crate) struct AttemptResources {
    pub(crate) shared: Arc<Shared>,
    pub(crate) worktree: Option<(Worktree, After)>,
    pub(crate) scratch: Scratch,
    /// Something has run in the worktree: before that there is nothing to keep.
    pub(crate) started: bool,
    /// Our name for the conversation it is part of.
    session: Option<SessionId>,
    /// The run it is an attempt of; none of a probe.
    run: Option<Arc<ActiveRun>>,
    /// The client is gone.
    cancelled: CancellationToken,
    rights: Option<Rights>,
}

/// What takes longer than this does not hold an answer up.
const BRIEFLY: Duration = Duration::from_millis(25);

/// What others wait for: the slot, and the session. Given back last.
struct Rights {
    _run: Option<TaskTrackerToken>,
    turn: Option<Arc<session::SessionGuard>>,
    _permit: Permit,
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
        let rights = Some(Rights { _run: run.as_ref().map(|run| run.hold()), turn, _permit: permit });
        let cancelled = CancellationToken::new();
        Self { shared, worktree: None, scratch, started: false, session, run, cancelled, rights }
    }

    /// Where the attempt works.
    pub(crate) fn cwd(&self, model: &Model) -> PathBuf {
        self.worktree.as_ref().map_or(model.repo.as_path(), |(worktree, _)| &worktree.cwd).to_owned()
    }

    /// What of the workspace the attempt may write, if it may write there.
    pub(crate) fn workspace(&self, model: &Model) -> Vec<PathBuf> {
        self.worktree.as_ref().map_or_else(|| sandbox::checkout(&model.repo), |(worktree, _)| worktree.parts())
    }

    /// Works in a worktree from now on.
    pub(crate) fn work_in(&mut self, worktree: Worktree, after: After) {
        if let Some(run) = &self.run {
            run.works_in(Some(worktree.clone()));
        }
        self.worktree = Some((worktree, after));
    }

    /// Saves and removes the worktree, if there is one, and notes where its session goes on.
    pub(crate) async fn put_in_order(&mut self) -> Option<Receipt> {
        let (worktree, after) = self.worktree.take()?;
        self.shared.worktrees.refill_spares();
        let finished = finish(&self.shared, &worktree, after, self.run.as_deref(), &self.cancelled).await;
        if let Some(session) = &self.session {
            self.shared.sessions.places.remember(session, &worktree.place(&finished.receipt));
        }
        self.delete(finished.gone).await;
        Some(finished.receipt)
    }

    /// Cancelled when the client is gone: a save has not long from then on.
    pub(crate) fn cancelled(&self) -> CancellationToken {
        self.cancelled.clone()
    }
}

impl AttemptResources {
    /// Deletes what is left of the worktree. Who waits for the answer waits for that only where it takes no time; the slot is
    /// not free before, and the run not gone, but the session's next turn may begin.
    async fn delete(&mut self, gone: Option<Gone>) {
        let (shared, mut rights) = (Arc::clone(&self.shared), self.rights.take());
        if let Some(rights) = &mut rights {
            rights.turn = None;
        }
        let deleting = self.shared.tasks.tracker.spawn(async move {
            shared.worktrees.delete(gone).await;
            drop(rights);
        });
        let _it_goes_on = tokio::time::timeout(BRIEFLY, deleting).await;
    }
}

impl Drop for AttemptResources {
    /// A run that was let go of before its end, or never got to start: its worktree is put in order all the same.
    fn drop(&mut self) {
        if let Some((worktree, after)) = self.worktree.take() {
            let (shared, rights, run) = (Arc::clone(&self.shared), self.rights.take(), self.run.take());
            let after = After { keep: after.keep && self.started, ..after };
            let (session, cancelled) = (self.session.take(), self.cancelled.clone());
            cancelled.cancel();
            self.shared.tasks.tracker.spawn(async move {
                let finished = finish(&shared, &worktree, after, run.as_deref(), &cancelled).await;
                if let Some(session) = session.filter(|_| finished.receipt.path.is_some()) {
                    shared.sessions.places.remember(&session, &worktree.place(&finished.receipt));
                }
                shared.worktrees.delete(finished.gone).await;
                // The session's next turn works in the same folder.
                drop(rights);
            });
        }
    }
}

/// Puts a worktree in order, and notes with its run what it left.
async fn finish(
    shared: &Shared,
    worktree: &Worktree,
    after: After,
    run: Option<&ActiveRun>,
    cancelled: &CancellationToken,
) -> Finished {
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
        shared.store_writer.note_workspace(runs::of_attempt(earlier), &finished.receipt).await;
    }
    if let Some(run) = run {
        shared.store_writer.note_workspace(&run.id, &finished.receipt).await;
        run.works_in(None);
    }
    finished
}
