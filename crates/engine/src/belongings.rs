//! What an attempt holds and must give back, however it ends.

use std::sync::Arc;

use trunkline_core::event::{Receipt, SessionId};

use crate::engine::Inner;
use crate::gate::Permit;
use crate::scratch::Scratch;
use crate::session;
use crate::worktree::{After, Worktree};

/// What a run holds and must give back: its worktree in order, its files removed, its slot freed.
pub(crate) struct Belongings {
    pub(crate) engine: Arc<Inner>,
    pub(crate) worktree: Option<(Worktree, After)>,
    pub(crate) scratch: Scratch,
    _turn: Option<Arc<session::Turn>>,
    _permit: Permit,
}

impl Belongings {
    pub(crate) fn new(engine: Arc<Inner>, permit: Permit, turn: Option<Arc<session::Turn>>, scratch: Scratch) -> Self {
        Self { engine, worktree: None, scratch, _turn: turn, _permit: permit }
    }

    /// Commits and removes the worktree, if there is one, and notes where its session goes on.
    pub(crate) async fn put_in_order(&mut self, session: Option<&SessionId>) -> Option<Receipt> {
        let (worktree, after) = self.worktree.take()?;
        match self.engine.worktrees.finish(&worktree, after).await {
            Ok(receipt) => {
                if let Some(session) = session {
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
            let engine = Arc::clone(&self.engine);
            self.engine.tracker.spawn(async move {
                if let Err(failure) = engine.worktrees.finish(&worktree, after).await {
                    tracing::error!(path = %worktree.cwd.display(), %failure, "a worktree could not be put in order and stays");
                }
            });
        }
    }
}
