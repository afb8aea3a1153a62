//! Pool of spare worktrees: the inventory, its limit, and what the tasks of the pool share.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::spare_inventory::{SpareInventory, SpareRequest};

/// Spare worktrees of this gateway.
pub(super) struct SparePool {
    inventory: Mutex<SpareInventory>,
    /// Maximum number of spares. Not set while spares are disabled.
    pub(super) max: OnceLock<usize>,
    pub(super) closing: CancellationToken,
    /// Held while a spare is created: one at a time.
    pub(super) creating: Semaphore,
    pub(super) tracker: TaskTracker,
}

impl SparePool {
    pub(super) fn new(tracker: TaskTracker) -> Self {
        Self {
            inventory: Mutex::default(),
            max: OnceLock::new(),
            closing: CancellationToken::new(),
            creating: Semaphore::new(1),
            tracker,
        }
    }

    pub(super) fn inventory(&self) -> MutexGuard<'_, SpareInventory> {
        self.inventory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_open(&self) -> bool {
        self.max.get().is_some_and(|max| *max > 0) && !self.closing.is_cancelled()
    }

    /// Returns the spares to create now. They count as pending from here on.
    pub(super) fn missing(&self) -> Vec<SpareRequest> {
        if !self.is_open() {
            return Vec::new();
        }
        self.inventory().missing(self.max.get().copied().unwrap_or(0), Instant::now())
    }
}
