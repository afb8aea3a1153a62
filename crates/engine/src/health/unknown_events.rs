//! Counters of events that our decoders do not know. A newer CLI may print some: each type is logged once and counted for the health
//! report.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Maximum number of tracked types. A CLI that invents types without end is not counted further.
const MAX_TRACKED_TYPES: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct UnknownEvents {
    /// Count of each type, by provider and type.
    seen: Mutex<BTreeMap<(String, String), u64>>,
}

impl UnknownEvents {
    /// Counts events of these types, and logs each new type.
    pub(crate) fn note(&self, provider: &str, kinds: Vec<String>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for kind in kinds {
            let full = seen.len() >= MAX_TRACKED_TYPES;
            let entry = (provider.to_owned(), kind);
            if let Some(count) = seen.get_mut(&entry) {
                *count += 1;
            } else if !full {
                tracing::warn!(provider, "an event of a type that is not known here: {:?}; said once", entry.1);
                seen.insert(entry, 1);
            }
        }
    }

    /// Unknown types of a provider, with counts.
    pub(crate) fn of(&self, provider: &str) -> BTreeMap<String, u64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let theirs = seen.iter().filter(|((whose, _), _)| whose == provider);
        theirs.map(|((_, kind), count)| (kind.clone(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_counted_for_each_provider() {
        let drift = UnknownEvents::default();
        drift.note("claude", vec!["new.a".into(), "new.b".into()]);
        drift.note("claude", vec!["new.a".into()]);
        drift.note("codex", (0..2 * MAX_TRACKED_TYPES).map(|n| format!("made.up.{n}")).collect());
        assert_eq!(drift.of("claude"), [("new.a".to_owned(), 2), ("new.b".to_owned(), 1)].into());
        assert_eq!(drift.of("codex").len(), MAX_TRACKED_TYPES - 2);
        assert!(drift.of("gemini").is_empty());
    }
}
