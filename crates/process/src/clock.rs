//! When a run has taken too long. Pure: it is told what happened and when, and says what is due next. Times are those of
//! the [`Pulse`](crate::pulse::Pulse): what nobody watched has not passed.

use std::time::Duration;

use trunkline_core::limits::{Limit, Limits, Overrun};
use trunkline_core::phase::Phase;

/// The limits of one run and what is needed to apply them.
#[derive(Debug)]
pub(crate) struct Clock {
    limits: Limits,
    started: Duration,
    last_sign: Duration,
    phase: Phase,
    /// A limit fires once, and is the last: the caller will end the run, and that has deadlines of its own.
    fired: bool,
}

impl Clock {
    pub(crate) fn start(limits: Limits, now: Duration) -> Self {
        Self { limits, started: now, last_sign: now, phase: Phase::Starting, fired: false }
    }

    /// The run printed something on stdout.
    pub(crate) fn spoke(&mut self, now: Duration) {
        if self.phase == Phase::Starting {
            self.phase = Phase::Thinking;
        }
        self.last_sign = now;
    }

    /// The run printed something on stderr: it lives, but it has not begun to answer.
    pub(crate) fn stirred(&mut self, now: Duration) {
        if self.phase != Phase::Starting {
            self.last_sign = now;
        }
    }

    /// What is printed says that this goes on now.
    pub(crate) fn enter(&mut self, phase: Phase, now: Duration) {
        if self.phase != phase {
            self.phase = phase;
            self.last_sign = now;
        }
    }

    /// The limit that will be passed first if nothing happens.
    pub(crate) fn next(&self) -> Option<(Duration, Limit)> {
        if self.fired {
            return None;
        }
        let total = self.started.checked_add(self.limits.total).map(|at| (at, Limit::Total));
        let silence = self.limits.silence(&self.phase);
        let silence = silence.and_then(|(limit, kind)| Some((self.last_sign.checked_add(limit)?, kind)));
        [total, silence].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    pub(crate) fn total_is_over(&self, now: Duration) -> bool {
        !self.fired && now.saturating_sub(self.started) >= self.limits.total
    }

    /// Notes that a limit was passed, and what went on then.
    pub(crate) fn passed(&mut self, limit: Limit) -> Overrun {
        self.fired = true;
        Overrun { limit, value: self.limits.of_kind(limit), phase: self.phase.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn clock() -> Clock {
        let limits = Limits {
            total: seconds(1000),
            startup: seconds(5),
            idle: seconds(10),
            tool: seconds(60),
            compact: seconds(30),
        };
        Clock::start(limits, seconds(100))
    }

    fn bash() -> Phase {
        Phase::Tool { names: vec!["Bash".to_owned()] }
    }

    #[test]
    fn startup_until_the_first_word_then_idle_then_total() {
        let mut clock = clock();
        assert_eq!(clock.next(), Some((seconds(105), Limit::Startup)));
        clock.stirred(seconds(104));
        assert_eq!(clock.next(), Some((seconds(105), Limit::Startup)), "stderr is not an answer");
        clock.spoke(seconds(104));
        assert_eq!(clock.next(), Some((seconds(114), Limit::Idle)));
        clock.stirred(seconds(108));
        assert_eq!(clock.next(), Some((seconds(118), Limit::Idle)), "stderr is a sign of life");
        clock.spoke(seconds(1095));
        assert_eq!(clock.next(), Some((seconds(1100), Limit::Total)));
    }

    #[test]
    fn each_phase_has_its_own_limit_and_begins_anew() {
        let mut clock = clock();
        clock.spoke(seconds(100));
        for (phase, at, limit, kind) in [
            (bash(), 101, 60, Limit::Tool),
            (Phase::Thinking, 150, 10, Limit::Idle),
            (Phase::Compacting, 151, 30, Limit::Compact),
            (Phase::Retrying { wait: seconds(20) }, 170, 30, Limit::Idle),
        ] {
            clock.enter(phase, seconds(at));
            assert_eq!(clock.next(), Some((seconds(at + limit), kind)));
        }
        clock.enter(Phase::Ended, seconds(200));
        assert_eq!(clock.next(), Some((seconds(1100), Limit::Total)));
    }

    #[test]
    fn the_same_phase_again_is_no_sign_of_life() {
        let mut clock = clock();
        clock.enter(bash(), seconds(100));
        clock.enter(bash(), seconds(150));
        assert_eq!(clock.next(), Some((seconds(160), Limit::Tool)));
        clock.stirred(seconds(155));
        assert_eq!(clock.next(), Some((seconds(215), Limit::Tool)), "but what a tool prints is one");
    }

    #[test]
    fn a_limit_fires_once_and_none_is_none() {
        let mut clock = clock();
        assert!(clock.total_is_over(seconds(1100)) && !clock.total_is_over(seconds(1099)));
        clock.enter(bash(), seconds(101));
        assert_eq!(clock.passed(Limit::Tool), Overrun { limit: Limit::Tool, value: seconds(60), phase: bash() });
        assert_eq!(clock.next(), None);
        assert!(!clock.total_is_over(seconds(1100)));
        assert_eq!(Clock::start(Limits::NONE, seconds(100)).next(), None);
    }
}
