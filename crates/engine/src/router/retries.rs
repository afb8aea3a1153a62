//! How many retries there may be over all requests. Where everything fails, trying everything again makes it worse.

use std::sync::Mutex;

use tokio::time::Instant;

/// What each request adds.
const EARNED: f64 = 0.2;

/// What each second adds: who asks little may always try again.
const PER_SECOND: f64 = 1.0;

/// The most that is put by.
const MOST: f64 = 30.0;

/// Retries that may be made.
pub(crate) struct Retries(Mutex<Level>);

struct Level {
    retries: f64,
    at: Instant,
}

impl Default for Retries {
    fn default() -> Self {
        Self(Mutex::new(Level { retries: MOST, at: Instant::now() }))
    }
}

impl Retries {
    /// There is a request.
    pub(crate) fn earn(&self) {
        self.change(|retries| *retries = (*retries + EARNED).min(MOST));
    }

    /// Takes one, if there is one.
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
        level.retries = (level.retries + (now - level.at).as_secs_f64() * PER_SECOND).min(MOST);
        level.at = now;
        change(&mut level.retries)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn case_70_a_fifth_of_many_requests_and_a_few_of_few() {
        let left = Retries::default();
        let storm = |requests: usize| {
            (0..requests)
                .map(|_| {
                    left.earn();
                    usize::from(left.take()) + usize::from(left.take())
                })
                .sum::<usize>()
        };
        // What was put by, and then a fifth.
        assert!((225..=230).contains(&storm(1000)), "a storm");
        assert_eq!(storm(100), 20);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(storm(1), 2, "one who waited");
        tokio::time::advance(Duration::from_hours(1)).await;
        assert!(storm(20) <= 34, "no more than a few are put by");
    }
}
