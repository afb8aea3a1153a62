//! Counters of finished turns, by provider and outcome.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Turns of one provider with the same outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Turns {
    /// The provider of the last attempt, or the first candidate if there was no attempt.
    pub provider: String,
    /// `ok`, or the category of the failure.
    pub outcome: &'static str,
    pub count: u64,
    /// Total duration.
    pub took: Duration,
}

/// Count and total duration by outcome.
type Outcomes = BTreeMap<&'static str, (u64, Duration)>;

/// Outcomes by provider.
#[derive(Debug, Default)]
pub(crate) struct TurnCounters(Mutex<BTreeMap<String, Outcomes>>);

impl TurnCounters {
    pub(crate) fn ended(&self, provider: &str, outcome: &'static str, took: Duration) {
        let mut all = self.all();
        if !all.contains_key(provider) {
            all.insert(provider.to_owned(), Outcomes::new());
        }
        if let Some((count, sum)) = all.get_mut(provider).map(|of| of.entry(outcome).or_default()) {
            *count += 1;
            *sum += took;
        }
    }

    pub(crate) fn turns(&self) -> Vec<Turns> {
        let all = self.all();
        let each = all.iter().flat_map(|(provider, outcomes)| outcomes.iter().map(move |of| (provider, of)));
        each.map(|(provider, (&outcome, &(count, took)))| Turns { provider: provider.clone(), outcome, count, took })
            .collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Outcomes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_by_provider_and_outcome() {
        let tally = TurnCounters::default();
        for (provider, outcome, millis) in [("b", "ok", 1), ("a", "timeout", 2), ("b", "ok", 3)] {
            tally.ended(provider, outcome, Duration::from_millis(millis));
        }
        let of = |provider: &str, outcome, count, millis| Turns {
            provider: provider.into(),
            outcome,
            count,
            took: Duration::from_millis(millis),
        };
        assert_eq!(tally.turns(), [of("a", "timeout", 1, 2), of("b", "ok", 2, 4)]);
    }
}
