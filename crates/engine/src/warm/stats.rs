//! Statistics of warm processes by provider, to tell whether they are worth their memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Statistics of one provider's warm processes since the gateway started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WarmStats {
    /// Turns that found a process ready.
    pub hits: u64,
    /// Turns that continued in the process that held their session.
    pub resumed: u64,
    /// Turns that could have used a warm process and found none.
    pub misses: u64,
    /// Turns whose warm process died before it printed anything. They were run in a new process.
    pub lost: u64,
    /// Processes that became ready.
    pub boots: u64,
    /// Processes that did not become ready.
    pub failed_boots: u64,
    /// Time that the last process took to become ready.
    pub last_boot_ms: Option<u64>,
    /// Mean time until a process was ready.
    pub mean_boot_ms: Option<u64>,
    /// Reason why the last process did not become ready. Cleared when one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Processes that wait for a turn now.
    pub ready: usize,
    /// Processes that are held for a session now.
    pub held: usize,
    /// Memory of ready and held processes, in MiB.
    pub resident_mib: u64,
}

impl WarmStats {
    /// Percentage of turns that used a warm process, of those that could have used one.
    #[must_use]
    pub fn hit_rate(&self) -> Option<u64> {
        let used = self.hits + self.resumed;
        (used * 100).checked_div(used + self.misses)
    }
}

/// Statistics of all providers.
#[derive(Debug, Default)]
pub(crate) struct WarmCounters(Mutex<BTreeMap<String, WarmStats>>);

impl WarmCounters {
    pub(crate) fn note(&self, provider: &str, change: impl FnOnce(&mut WarmStats)) {
        let mut all = self.all();
        if !all.contains_key(provider) {
            all.insert(provider.to_owned(), WarmStats::default());
        }
        if let Some(stats) = all.get_mut(provider) {
            change(stats);
        }
    }

    pub(crate) fn booted(&self, provider: &str, took: Duration) {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.note(provider, |stats| {
            let sum = stats.mean_boot_ms.unwrap_or(0).saturating_mul(stats.boots).saturating_add(took);
            stats.boots += 1;
            stats.mean_boot_ms = Some(sum / stats.boots);
            stats.last_boot_ms = Some(took);
            stats.error = None;
        });
    }

    pub(crate) fn providers(&self) -> Vec<String> {
        self.all().keys().cloned().collect()
    }

    pub(crate) fn of(&self, provider: &str) -> Option<WarmStats> {
        self.all().get(provider).cloned()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, WarmStats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_mean_start_time_and_hit_rate() {
        let counters = WarmCounters::default();
        for took in [100, 200, 600] {
            counters.booted("claude", Duration::from_millis(took));
        }
        counters.note("claude", |stats| (stats.hits, stats.misses) = (3, 1));
        let stats = counters.of("claude").unwrap();
        assert_eq!((stats.boots, stats.mean_boot_ms, stats.last_boot_ms), (3, Some(300), Some(600)));
        assert_eq!((stats.hit_rate(), WarmStats::default().hit_rate()), (Some(75), None));
        assert_eq!(counters.of("codex"), None);
    }
}
