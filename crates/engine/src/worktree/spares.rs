//! The spare worktrees of this gateway: how many there may be, and the tasks that keep them.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::shelf::{Order, Shelf};

/// The spares of this gateway.
pub(super) struct Spares {
    shelf: Mutex<Shelf>,
    /// How many there may be. Not set while nobody wants any.
    pub(super) most: OnceLock<usize>,
    pub(super) closing: CancellationToken,
    /// One is made at a time.
    pub(super) turnstile: Semaphore,
    pub(super) tracker: TaskTracker,
}

impl Spares {
    pub(super) fn new(tracker: TaskTracker) -> Self {
        Self {
            shelf: Mutex::default(),
            most: OnceLock::new(),
            closing: CancellationToken::new(),
            turnstile: Semaphore::new(1),
            tracker,
        }
    }

    pub(super) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_open(&self) -> bool {
        self.most.get().is_some_and(|most| *most > 0) && !self.closing.is_cancelled()
    }

    /// What is to be made now.
    pub(super) fn wanted(&self) -> Vec<Order> {
        if !self.is_open() {
            return Vec::new();
        }
        self.shelf().wanted(self.most.get().copied().unwrap_or(0), Instant::now())
    }
}
