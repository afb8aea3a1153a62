//! How many lines of a kind are worth their memory. Pure: it is told when one was wanted, and what time it is.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How far back use counts.
const WINDOW: Duration = Duration::from_secs(60);

/// How long after the last use one is kept ready.
pub(crate) const IDLE: Duration = Duration::from_secs(10 * 60);

/// The most of a kind that use alone asks for.
const MOST: usize = 4;

/// More uses than could ask for more.
const MANY: usize = 256;

/// When lines of a kind were wanted.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    uses: VecDeque<Instant>,
}

impl Demand {
    pub(crate) fn used(&mut self, now: Instant) {
        if self.uses.len() == MANY {
            self.uses.pop_front();
        }
        self.uses.push_back(now);
    }

    pub(crate) fn last(&self) -> Option<Instant> {
        self.uses.back().copied()
    }

    /// As many as are taken while one starts, and one at least once there was use enough at all.
    pub(crate) fn wanted(&self, enough: usize, start: Duration, now: Instant) -> usize {
        if self.uses.len() < enough {
            return 0;
        }
        let Some(last) = self.last().filter(|last| now.duration_since(*last) < IDLE) else { return 0 };
        let recent = self.uses.iter().filter(|at| last.duration_since(**at) < WINDOW).count();
        let taken = recent as f64 * start.as_secs_f64() / WINDOW.as_secs_f64();
        (taken.ceil() as usize).clamp(1, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_are_taken_while_one_starts() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        for (uses, boot, wanted) in [(0, 5, 0), (1, 5, 1), (12, 5, 1), (13, 5, 2), (30, 5, 3), (200, 5, 4), (30, 1, 1)]
        {
            let mut demand = Demand::default();
            (0..uses).for_each(|_| demand.used(start));
            assert_eq!(demand.wanted(1, seconds(boot), start), wanted, "{uses} uses, {boot} s");
            assert_eq!(demand.wanted(1, seconds(boot), start + IDLE), 0, "nobody came for long");
        }
    }

    #[test]
    fn what_is_long_ago_does_not_count() {
        let start = Instant::now();
        let mut demand = Demand::default();
        (0..100).for_each(|_| demand.used(start));
        let later = start + WINDOW;
        demand.used(later);
        assert_eq!(demand.wanted(1, Duration::from_secs(5), later), 1);
        assert_eq!(demand.wanted(102, Duration::from_secs(5), later), 0);
    }
}
