//! Token bucket for requests per minute. Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

const MINUTE: f64 = 60.0;

/// A token bucket. It starts full, so that a burst of one minute's requests is allowed after a pause.
#[derive(Debug)]
pub(crate) struct Bucket {
    per_minute: u32,
    tokens: f64,
    at: Instant,
}

/// Remaining requests of a rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    pub limit: u32,
    pub remaining: u32,
    /// Time until the bucket is full again.
    pub reset: Duration,
}

impl Bucket {
    pub(crate) fn new(per_minute: u32, now: Instant) -> Self {
        Self { per_minute, tokens: f64::from(per_minute), at: now }
    }

    /// Time until a token is available; `None` if one is available now.
    pub(crate) fn wait(&mut self, now: Instant) -> Option<Duration> {
        self.fill(now);
        let missing = 1.0 - self.tokens;
        // A tiny deficit is a rounding error of many additions.
        (missing > 1e-6).then(|| Duration::from_secs_f64(missing * MINUTE / f64::from(self.per_minute.max(1))))
    }

    pub(crate) fn take(&mut self, now: Instant) {
        self.fill(now);
        self.tokens = (self.tokens - 1.0).max(0.0);
    }

    pub(crate) fn allowance(&mut self, now: Instant) -> Allowance {
        self.fill(now);
        let missing = f64::from(self.per_minute) - self.tokens;
        let reset = Duration::from_secs_f64(missing * MINUTE / f64::from(self.per_minute.max(1)));
        Allowance { limit: self.per_minute, remaining: self.tokens as u32, reset }
    }

    /// Whether the bucket is full, like a new one.
    pub(crate) fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.tokens >= f64::from(self.per_minute)
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * f64::from(self.per_minute) / MINUTE).min(f64::from(self.per_minute));
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_a_burst_and_then_an_even_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(30, start);
        for _ in 0..30 {
            assert_eq!(bucket.wait(start), None);
            bucket.take(start);
        }
        assert_eq!(bucket.wait(start), Some(Duration::from_secs(2)));
        assert_eq!(bucket.wait(start + Duration::from_secs(1)), Some(Duration::from_secs(1)));
        assert_eq!(bucket.wait(start + Duration::from_secs(2)), None);
    }

    #[test]
    fn remaining_requests_are_reported() {
        let start = Instant::now();
        let mut bucket = Bucket::new(60, start);
        assert_eq!(bucket.allowance(start), Allowance { limit: 60, remaining: 60, reset: Duration::ZERO });
        bucket.take(start);
        bucket.take(start);
        assert_eq!(bucket.allowance(start), Allowance { limit: 60, remaining: 58, reset: Duration::from_secs(2) });
        let later = start + Duration::from_secs(3600);
        assert!(bucket.is_full(later));
        assert_eq!(bucket.allowance(later).remaining, 60, "no more than a minute's worth is saved up");
    }

    proptest::proptest! {
        /// At any times, no more requests pass than one bucket plus what was refilled since.
        #[test]
        fn rate_is_never_exceeded(steps in proptest::collection::vec(0_u64..3_000, 1..300), rate in 1_u32..100) {
            let start = Instant::now();
            let (mut now, mut bucket, mut taken) = (start, Bucket::new(rate, start), 0_u32);
            for millis in steps {
                now += Duration::from_millis(millis);
                if bucket.wait(now).is_none() {
                    bucket.take(now);
                    taken += 1;
                }
            }
            let most = f64::from(rate) * (1.0 + (now - start).as_secs_f64() / MINUTE);
            proptest::prop_assert!(f64::from(taken) <= most + 0.01);
        }
    }
}
