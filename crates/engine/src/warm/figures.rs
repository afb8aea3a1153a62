//! What became of lines, by provider: what a reader needs to tell whether they are worth their memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How lines of one provider have done since the gateway began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Turns that found a line ready.
    pub hits: u64,
    /// Turns that went on in the process that held their session.
    pub resumed: u64,
    /// Turns that could have used a line and found none.
    pub misses: u64,
    /// Turns whose line died before it had said anything: they were run cold.
    pub lost: u64,
    /// Lines that came up, and those that did not.
    pub boots: u64,
    pub failed_boots: u64,
    /// How long the last one took to come up, and the mean.
    pub last_boot_ms: Option<u64>,
    pub mean_boot_ms: Option<u64>,
    /// Why the last one did not, until one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Now: waiting for a turn, held for a session, and the memory of both.
    pub ready: usize,
    pub held: usize,
    pub resident_mib: u64,
}

impl Figures {
    /// The part of the turns that could have used a line which did, in per cent.
    #[must_use]
    pub fn hit_rate(&self) -> Option<u64> {
        let used = self.hits + self.resumed;
        (used * 100).checked_div(used + self.misses)
    }
}

/// Counted where it happens, read where it is shown.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<String, Figures>>);

impl Ledger {
    pub(crate) fn note(&self, provider: &str, change: impl FnOnce(&mut Figures)) {
        let mut all = self.all();
        if !all.contains_key(provider) {
            all.insert(provider.to_owned(), Figures::default());
        }
        if let Some(figures) = all.get_mut(provider) {
            change(figures);
        }
    }

    pub(crate) fn booted(&self, provider: &str, took: Duration) {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.note(provider, |figures| {
            let sum = figures.mean_boot_ms.unwrap_or(0).saturating_mul(figures.boots).saturating_add(took);
            figures.boots += 1;
            figures.mean_boot_ms = Some(sum / figures.boots);
            figures.last_boot_ms = Some(took);
            figures.error = None;
        });
    }

    pub(crate) fn providers(&self) -> Vec<String> {
        self.all().keys().cloned().collect()
    }

    pub(crate) fn of(&self, provider: &str) -> Option<Figures> {
        self.all().get(provider).cloned()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Figures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_and_a_rate() {
        let ledger = Ledger::default();
        for took in [100, 200, 600] {
            ledger.booted("claude", Duration::from_millis(took));
        }
        ledger.note("claude", |figures| (figures.hits, figures.misses) = (3, 1));
        let figures = ledger.of("claude").unwrap();
        assert_eq!((figures.boots, figures.mean_boot_ms, figures.last_boot_ms), (3, Some(300), Some(600)));
        assert_eq!((figures.hit_rate(), Figures::default().hit_rate()), (Some(75), None));
        assert_eq!(ledger.of("codex"), None);
    }
}
