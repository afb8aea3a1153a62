//! Usage of one kind of process or worktree, and the number to keep ready. Pure: the caller passes the time.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Period before the last use in which uses are counted.
const USAGE_WINDOW: Duration = Duration::from_secs(60);

/// Time after the last use for which one is kept ready.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Maximum number that use alone asks for.
const MAX_TARGET: usize = 4;

/// Maximum number of recorded uses. More would not raise the target.
const MAX_RECORDED_USES: usize = 256;

/// Times at which one kind was used.
#[derive(Debug, Default)]
pub(crate) struct UsageHistory {
    uses: VecDeque<Instant>,
}

impl UsageHistory {
    pub(crate) fn used(&mut self, now: Instant) {
        if self.uses.len() == MAX_RECORDED_USES {
            self.uses.pop_front();
        }
        self.uses.push_back(now);
    }

    pub(crate) fn last(&self) -> Option<Instant> {
        self.uses.back().copied()
    }

    /// Returns as many as are taken while a new one starts, which takes `start`. Zero before `min_uses`, then at least
    /// one.
    pub(crate) fn target_count(&self, min_uses: usize, start: Duration, now: Instant) -> usize {
        if self.uses.len() < min_uses {
            return 0;
        }
        let Some(last) = self.last().filter(|last| now.duration_since(*last) < IDLE_TIMEOUT) else { return 0 };
        let recent = self.uses.iter().filter(|at| last.duration_since(**at) < USAGE_WINDOW).count();
        let taken = recent as f64 * start.as_secs_f64() / USAGE_WINDOW.as_secs_f64();
        (taken.ceil() as usize).clamp(1, MAX_TARGET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_the_number_taken_while_one_starts() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        for (uses, boot, target) in [(0, 5, 0), (1, 5, 1), (12, 5, 1), (13, 5, 2), (30, 5, 3), (200, 5, 4), (30, 1, 1)]
        {
            let mut usage = UsageHistory::default();
            (0..uses).for_each(|_| usage.used(start));
            assert_eq!(usage.target_count(1, seconds(boot), start), target, "{uses} uses, {boot} s");
            assert_eq!(usage.target_count(1, seconds(boot), start + IDLE_TIMEOUT), 0, "idle for too long");
        }
    }

    #[test]
    fn uses_before_the_window_do_not_count() {
        let start = Instant::now();
        let mut usage = UsageHistory::default();
        (0..100).for_each(|_| usage.used(start));
        let later = start + USAGE_WINDOW;
        usage.used(later);
        assert_eq!(usage.target_count(1, Duration::from_secs(5), later), 1);
        assert_eq!(usage.target_count(102, Duration::from_secs(5), later), 0);
    }
}
