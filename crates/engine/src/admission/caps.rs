//! Limits of admission, as resolved from the configuration.

use std::collections::HashMap;
use std::time::Duration;

use trunkline_core::turn::ClientId;

/// Maximum number of runs that wait for results of the client's tools, unless the settings say otherwise.
const DEFAULT_MAX_PARKED: usize = 64;

/// Limits in total, for each model and for each key.
#[derive(Debug, Clone)]
pub struct Caps {
    pub runs: usize,
    pub runs_per_model: usize,
    /// Maximum number of waiting requests.
    pub queue: usize,
    /// Maximum time that a request waits.
    pub queue_timeout: Duration,
    /// Maximum number of runs that wait for results of the client's tools.
    pub parked: usize,
    /// Requests per minute in total.
    pub per_minute: Option<u32>,
    pub model_per_minute: Option<u32>,
    /// Limits of a key without an entry in `keys`. Local clients without a key have no limits of their own.
    pub key: KeyCaps,
    /// Limits of single keys.
    pub keys: HashMap<ClientId, KeyCaps>,
}

/// Limits of one key.
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
    /// Limits for `runs` concurrent runs and `queue` waiting requests. Each key may use all slots, but only half of the queue.
    #[must_use]
    pub fn of(runs: usize, queue: usize) -> Self {
        Self {
            runs,
            runs_per_model: runs,
            queue,
            queue_timeout: Duration::from_secs(600),
            parked: DEFAULT_MAX_PARKED,
            per_minute: None,
            model_per_minute: None,
            key: KeyCaps { runs, queue: queue.div_ceil(2), per_minute: None },
            keys: HashMap::new(),
        }
    }

    pub(crate) fn of_owner(&self, owner: &ClientId) -> KeyCaps {
        if owner.is_local() {
            return KeyCaps { runs: self.runs, queue: self.queue, per_minute: None };
        }
        self.keys.get(owner).copied().unwrap_or(self.key)
    }
}
