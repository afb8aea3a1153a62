//! What an attempt holds and must give back, however it ends.

use std::path::PathBuf;
use std::sync::Arc;

use trunkline_core::event::{Receipt, SessionId};
use trunkline_core::model::Model;

use crate::engine::Inner;
use crate::gate::Permit;
use crate::sandbox;
use crate::scratch::Scratch;
use crate::session;
use crate::worktree::{After, Worktree};

/// What a run holds and must give back: its worktree in order, its files removed, its slot freed.
pub(crate) struct Belongings {
    pub(crate) engine: Arc<Inner>,
    pub(crate) worktree: Option<(Worktree, After)>,
    pub(crate) scratch: Scratch,
    /// Something has run in the worktree: before that there is nothing to keep.
    pub(crate) started: bool,
    /// Our name for the conversation it is part of.
    session: Option<SessionId>,
    rights: Option<Rights>,
}

/// What others wait for: the slot, and the session. Given back last.
struct Rights {
    _turn: Option<Arc<session::Turn>>,
    _permit: Permit,
}

impl Belongings {
    pub(crate) fn new(
        engine: Arc<Inner>,
        permit: Permit,
        session: Option<(SessionId, Arc<session::Turn>)>,
        scratch: Scratch,
    ) -> Self {
        let (session, turn) = session.unzip();
        let rights = Some(Rights { _turn: turn, _permit: permit });
        Self { engine, worktree: None, scratch, started: false, session, rights }
    }

    /// Where the attempt works.
    pub(crate) fn cwd(&self, model: &Model) -> PathBuf {
        self.worktree.as_ref().map_or(model.repo.as_path(), |(worktree, _)| &worktree.cwd).to_owned()
    }

    /// What of the workspace the attempt may write, if it may write there.
    pub(crate) fn workspace(&self, model: &Model) -> Vec<PathBuf> {
        self.worktree.as_ref().map_or_else(|| sandbox::checkout(&model.repo), |(worktree, _)| worktree.parts())
    }

    /// Commits and removes the worktree, if there is one, and notes where its session goes on.
    pub(crate) async fn put_in_order(&mut self) -> Option<Receipt> {
        let (worktree, after) = self.worktree.take()?;
        match self.engine.worktrees.finish(&worktree, after).await {
            Ok(receipt) => {
                if let Some(session) = &self.session {
                    self.engine.sessions.places.remember(session, &worktree.place(&receipt));
                }
                Some(receipt)
            }
            Err(failure) => {
                tracing::error!(path = %worktree.cwd.display(), %failure, "a worktree could not be put in order and stays");
                Some(worktree.left_behind())
            }
        }
    }
}

impl Drop for Belongings {
    /// A run that was let go of before its end, or never got to start: its worktree is put in order all the same.
    fn drop(&mut self) {
        if let Some((worktree, after)) = self.worktree.take() {
            let (engine, rights) = (Arc::clone(&self.engine), self.rights.take());
            let after = After { keep: after.keep && self.started, ..after };
            self.engine.tracker.spawn(async move {
                if let Err(failure) = engine.worktrees.finish(&worktree, after).await {
                    tracing::error!(path = %worktree.cwd.display(), %failure, "a worktree could not be put in order and stays");
                }
                // The session's next turn works in the same folder.
                drop(rights);
            });
        }
    }
}
