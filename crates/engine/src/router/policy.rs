//! The step after a failed attempt: retry the provider, fall back to another, or stop. Pure: randomness is an argument.

use std::time::Duration;

use trunkline_core::failure::{Category, Failure};

/// Rules for retries and fallbacks of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// Retries of one provider.
    pub max_retries: u32,
    pub backoff: Backoff,
    /// Categories that allow a fallback, in addition to those that always do.
    pub fallback_on: Vec<Category>,
    pub breaker: super::Breaker,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 2,
            backoff: Backoff::default(),
            fallback_on: Vec::new(),
            breaker: super::Breaker::default(),
        }
    }
}

impl RetryPolicy {
    /// Whether a failure of this category allows a fallback.
    #[must_use]
    pub fn falls_back(&self, category: Category) -> bool {
        category != Category::Cancelled && (category.policy().fallback || self.fallback_on.contains(&category))
    }
}

/// Wait before a retry of the same provider.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    pub initial: Duration,
    pub factor: f64,
    /// Maximum wait. A provider that asks for a longer one is not retried.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_millis(500), factor: 2.0, max: Duration::from_secs(60) }
    }
}

/// Visible effects of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposure {
    Nothing,
    /// Output was shown or a tool ran, in a worktree that the next attempt does not share.
    Apart,
    /// Output was shown or a tool ran: a silent retry would misrepresent what happened.
    Exposed,
}

/// A failed attempt, as input of the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed<'a> {
    pub(crate) failure: &'a Failure,
    /// Retries of this provider so far.
    pub(crate) retries: u32,
    pub(crate) exposure: Exposure,
    /// Whether another candidate is left.
    pub(crate) another: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Retry { after: Duration },
    Fallback,
    Stop,
}

/// Decides the next step. `chance` is a random number in `0.0..1.0`.
pub(crate) fn next(policy: &RetryPolicy, failed: &Failed<'_>, chance: f64) -> Next {
    if failed.exposure == Exposure::Exposed {
        return Next::Stop;
    }
    let category = failed.failure.category;
    if category.policy().retry
        && failed.retries < policy.max_retries
        && let Some(after) = policy.backoff.wait(failed.retries, failed.failure.retry_after, chance)
    {
        return Next::Retry { after };
    }
    if failed.another && policy.falls_back(category) { Next::Fallback } else { Next::Stop }
}

impl Backoff {
    /// Wait before retry number `retries` + 1; `None` if the provider asks for more than the maximum. Never shorter than the provider
    /// asks; otherwise between half and all of the exponential backoff, so that clients do not return all at once.
    fn wait(&self, retries: u32, asked: Option<Duration>, chance: f64) -> Option<Duration> {
        let exponent = i32::try_from(retries).unwrap_or(i32::MAX);
        let steps = self.initial.as_secs_f64() * self.factor.powi(exponent);
        let own = steps.min(self.max.as_secs_f64()) * (0.5 + chance / 2.0);
        let own = Duration::try_from_secs_f64(own).unwrap_or(self.max);
        match asked {
            Some(asked) if asked > self.max => None,
            Some(asked) => Some(own.max(asked + asked.mul_f64(chance / 10.0))),
            None => Some(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHANCE: f64 = 0.5;

    fn failure(category: Category, asked_ms: Option<u64>) -> Failure {
        Failure::new(category, "no").retry_after(asked_ms.map(Duration::from_millis))
    }

    fn decide(policy: &RetryPolicy, failure: &Failure, retries: u32, another: bool) -> &'static str {
        match next(policy, &Failed { failure, retries, exposure: Exposure::Nothing, another }, CHANCE) {
            Next::Retry { .. } => "retry",
            Next::Fallback => "fallback",
            Next::Stop => "stop",
        }
    }

    #[test]
    fn decision_for_each_category_before_and_after_all_retries() {
        use Category::*;
        let policy = RetryPolicy::default();
        for (category, first, at_last, alone) in [
            (Quota, "fallback", "fallback", "stop"),
            (RateLimit, "retry", "stop", "stop"),
            (Authentication, "stop", "stop", "stop"),
            (Validation, "stop", "stop", "stop"),
            (Network, "retry", "fallback", "stop"),
            (Server, "retry", "fallback", "stop"),
            (Timeout, "retry", "fallback", "stop"),
            (NotFound, "fallback", "fallback", "stop"),
            (Configuration, "stop", "stop", "stop"),
            (Unknown, "fallback", "fallback", "stop"),
            (Cancelled, "stop", "stop", "stop"),
        ] {
            let failure = failure(category, None);
            let seen = (decide(&policy, &failure, 0, true), decide(&policy, &failure, 2, true));
            assert_eq!(seen, (first, at_last), "{category:?}");
            assert_eq!(decide(&policy, &failure, 2, false), alone, "{category:?} with nobody else");
        }
    }

    #[test]
    fn configured_categories_allow_fallback_except_cancellation() {
        let policy = RetryPolicy { fallback_on: Category::ALL.to_vec(), ..RetryPolicy::default() };
        for category in Category::ALL {
            let expected = if category == Category::Cancelled { "stop" } else { "fallback" };
            assert_eq!(decide(&policy, &failure(category, None), 2, true), expected, "{category:?}");
        }
    }

    #[test]
    fn exposed_attempt_is_not_retried_unless_it_had_its_own_worktree() {
        let failure = failure(Category::Server, None);
        for (exposure, retries, expected) in [
            (Exposure::Nothing, 0, "retry"),
            (Exposure::Apart, 0, "retry"),
            (Exposure::Apart, 2, "fallback"),
            (Exposure::Exposed, 0, "stop"),
            (Exposure::Exposed, 2, "stop"),
        ] {
            let failed = Failed { failure: &failure, retries, exposure, another: true };
            let seen = match next(&RetryPolicy::default(), &failed, CHANCE) {
                Next::Retry { .. } => "retry",
                Next::Fallback => "fallback",
                Next::Stop => "stop",
            };
            assert_eq!(seen, expected, "{exposure:?} {retries}");
        }
    }

    #[test]
    fn wait_grows_exponentially_up_to_the_maximum() {
        let backoff = Backoff { max: Duration::from_secs(10), ..Backoff::default() };
        for (retries, asked_ms, chance, expected_ms) in [
            (0, None, 0.0, Some(250)),
            (0, None, 1.0, Some(500)),
            (1, None, 1.0, Some(1000)),
            (3, None, 1.0, Some(4000)),
            (60, None, 1.0, Some(10_000)),
            (0, Some(1000), 0.0, Some(1000)),
            (0, Some(1000), 1.0, Some(1100)),
            (3, Some(1000), 1.0, Some(4000)),
            (0, Some(10_000), 0.0, Some(10_000)),
            (0, Some(10_001), 0.0, None),
        ] {
            let wait = backoff.wait(retries, asked_ms.map(Duration::from_millis), chance);
            assert_eq!(wait.map(|wait| wait.as_millis()), expected_ms, "{retries} {asked_ms:?} {chance}");
        }
    }

    #[test]
    fn provider_is_not_retried_when_it_asks_for_too_long_a_wait() {
        let asked = failure(Category::RateLimit, Some(3_600_000));
        assert_eq!(decide(&RetryPolicy::default(), &asked, 0, true), "stop");
        let policy = RetryPolicy { fallback_on: vec![Category::RateLimit], ..RetryPolicy::default() };
        assert_eq!(decide(&policy, &asked, 0, true), "fallback");
        assert_eq!(decide(&policy, &failure(Category::RateLimit, Some(1000)), 0, true), "retry");
    }

    proptest! {
        #[test]
        fn wait_is_never_shorter_than_asked_nor_longer_than_allowed(
            retries in 0u32..100, asked in proptest::option::of(0u64..100_000), chance in 0.0f64..1.0,
        ) {
            let backoff = Backoff::default();
            let asked = asked.map(Duration::from_millis);
            match backoff.wait(retries, asked, chance) {
                Some(wait) => {
                    prop_assert!(wait >= asked.unwrap_or_default());
                    prop_assert!(wait <= backoff.max.mul_f64(1.1));
                }
                None => prop_assert!(asked.is_some_and(|asked| asked > backoff.max)),
            }
        }
    }
}
