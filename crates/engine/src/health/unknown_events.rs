//! Events that our decoders do not know. A CLI that is newer than we are may print some: they are kept in its events, said
//! once in the log, and counted here for whoever looks.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// More types than any CLI has: what makes new ones up is not counted further.
const MANY: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct UnknownEvents {
    /// How often each type came, by provider and type.
    seen: Mutex<BTreeMap<(String, String), u64>>,
}

impl UnknownEvents {
    /// Counts events of these types, and says of each new one that it came.
    pub(crate) fn note(&self, provider: &str, kinds: Vec<String>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for kind in kinds {
            let full = seen.len() >= MANY;
            let entry = (provider.to_owned(), kind);
            if let Some(count) = seen.get_mut(&entry) {
                *count += 1;
            } else if !full {
                tracing::warn!(provider, "an event of a type that is not known here: {:?}; said once", entry.1);
                seen.insert(entry, 1);
            }
        }
    }

    /// The unknown types that a provider has printed, and how often.
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
    fn each_type_is_counted_for_who_printed_it() {
        let drift = UnknownEvents::default();
        drift.note("claude", vec!["new.a".into(), "new.b".into()]);
        drift.note("claude", vec!["new.a".into()]);
        drift.note("codex", (0..2 * MANY).map(|n| format!("made.up.{n}")).collect());
        assert_eq!(drift.of("claude"), [("new.a".to_owned(), 2), ("new.b".to_owned(), 1)].into());
        assert_eq!(drift.of("codex").len(), MANY - 2);
        assert!(drift.of("gemini").is_empty());
    }
}
