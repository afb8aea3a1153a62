//! How much of everything there may be at once: settings, as they were resolved.

use std::collections::HashMap;
use std::time::Duration;

use trunkline_core::turn::Owner;

/// What the gateway allows in all, to each model and to each key.
#[derive(Debug, Clone)]
pub struct Caps {
    pub runs: usize,
    pub runs_per_model: usize,
    /// How many may wait.
    pub queue: usize,
    /// How long one may wait.
    pub queue_timeout: Duration,
    /// Requests in a minute, of all.
    pub per_minute: Option<u32>,
    pub model_per_minute: Option<u32>,
    /// What a key has where nothing else is said of it. Whoever uses the machine itself has no limits of their own.
    pub key: KeyCaps,
    /// Keys of which something else is said.
    pub keys: HashMap<Owner, KeyCaps>,
}

/// What one key is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCaps {
    pub runs: usize,
    pub queue: usize,
    pub per_minute: Option<u32>,
}

impl Default for Caps {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let runs = (cores * 2).max(8);
        Self::of(runs, 256)
    }
}

impl Caps {
    /// So many runs, and so many who wait; each key may take all of the slots, but only half of the queue.
    #[must_use]
    pub fn of(runs: usize, queue: usize) -> Self {
        Self {
            runs,
            runs_per_model: runs,
            queue,
            queue_timeout: Duration::from_secs(600),
            per_minute: None,
            model_per_minute: None,
            key: KeyCaps { runs, queue: queue.div_ceil(2), per_minute: None },
            keys: HashMap::new(),
        }
    }

    pub(crate) fn of_owner(&self, owner: &Owner) -> KeyCaps {
        if owner.is_local() {
            return KeyCaps { runs: self.runs, queue: self.queue, per_minute: None };
        }
        self.keys.get(owner).copied().unwrap_or(self.key)
    }
}
