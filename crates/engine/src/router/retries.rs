//! Retry budget over all requests. When everything fails, retrying everything makes it worse.

use std::sync::Mutex;

use tokio::time::Instant;

/// Retries that each request adds to the budget.
const RETRIES_PER_REQUEST: f64 = 0.2;

/// Retries that each second adds, so that an idle gateway can always retry.
const RETRIES_PER_SECOND: f64 = 1.0;

/// Maximum of the budget.
const MAX_RETRIES: f64 = 30.0;

/// The retry budget.
pub(crate) struct Retries(Mutex<Level>);

struct Level {
    retries: f64,
    at: Instant,
}

impl Default for Retries {
    fn default() -> Self {
        Self(Mutex::new(Level { retries: MAX_RETRIES, at: Instant::now() }))
    }
}

impl Retries {
    /// Adds the share of one request.
    pub(crate) fn earn(&self) {
        self.change(|retries| *retries = (*retries + RETRIES_PER_REQUEST).min(MAX_RETRIES));
    }

    /// Takes one retry from the budget; `false` if the budget is empty.
    pub(crate) fn take(&self) -> bool {
        self.change(|retries| {
            let enough = *retries >= 1.0;
            if enough {
                *retries -= 1.0;
            }
            enough
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut f64) -> T) -> T {
        let mut level = self.0.lock().expect("no panic while holding the lock");
        let now = Instant::now();
        level.retries = (level.retries + (now - level.at).as_secs_f64() * RETRIES_PER_SECOND).min(MAX_RETRIES);
        level.at = now;
        change(&mut level.retries)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn case_70_a_fifth_of_many_requests_may_be_retried_and_a_few_when_there_are_few() {
        let left = Retries::default();
        let storm = |requests: usize| {
            (0..requests)
                .map(|_| {
                    left.earn();
                    usize::from(left.take()) + usize::from(left.take())
                })
                .sum::<usize>()
        };
        // The accumulated budget, then a fifth of the requests.
        assert!((225..=230).contains(&storm(1000)), "a storm");
        assert_eq!(storm(100), 20);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(storm(1), 2, "one who waited");
        tokio::time::advance(Duration::from_hours(1)).await;
        assert!(storm(20) <= 34, "no more than a few are put by");
    }
}
