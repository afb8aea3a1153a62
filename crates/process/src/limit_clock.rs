//! Decides when a program has exceeded one of its limits.
//!
//! Pure: the caller reports what happened and when, and asks which limit is next. Times are those of the
//! [`AwakeClock`](crate::awake::AwakeClock), so time during which this process was stopped does not count.

use std::time::Duration;

use trunkline_core::limits::{Limit, Limits, Overrun};
use trunkline_core::phase::Phase;

/// The limits of one program, and the state needed to apply them.
#[derive(Debug)]
pub(crate) struct LimitClock {
    limits: Limits,
    started: Duration,
    /// Time of the last sign of life.
    last_sign: Duration,
    phase: Phase,
    /// Whether a limit was exceeded. It fires once and is the last: the caller ends the program, which has deadlines of
    /// its own.
    fired: bool,
}

impl LimitClock {
    pub(crate) fn start(limits: Limits, now: Duration) -> Self {
        Self { limits, started: now, last_sign: now, phase: Phase::Starting, fired: false }
    }

    /// Notes output on stdout. The first output ends the startup phase.
    pub(crate) fn note_stdout(&mut self, now: Duration) {
        if self.phase == Phase::Starting {
            self.phase = Phase::Thinking;
        }
        self.last_sign = now;
    }

    /// Notes output on stderr: a sign of life, but not the beginning of an answer.
    pub(crate) fn note_stderr(&mut self, now: Duration) {
        if self.phase != Phase::Starting {
            self.last_sign = now;
        }
    }

    /// Notes the phase that the program's output shows it to be in. A new phase is a sign of life.
    pub(crate) fn enter(&mut self, phase: Phase, now: Duration) {
        if self.phase != phase {
            self.phase = phase;
            self.last_sign = now;
        }
    }

    /// Returns the limit that will be exceeded first if nothing else happens, and when.
    pub(crate) fn next(&self) -> Option<(Duration, Limit)> {
        if self.fired {
            return None;
        }
        let total = self.started.checked_add(self.limits.total).map(|at| (at, Limit::Total));
        let silence = self.limits.silence(&self.phase);
        let silence = silence.and_then(|(limit, kind)| Some((self.last_sign.checked_add(limit)?, kind)));
        [total, silence].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    pub(crate) fn is_total_exceeded(&self, now: Duration) -> bool {
        !self.fired && now.saturating_sub(self.started) >= self.limits.total
    }

    /// Notes that a limit was exceeded, and returns it with the phase at that moment.
    pub(crate) fn exceed(&mut self, limit: Limit) -> Overrun {
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

    fn clock() -> LimitClock {
        let limits = Limits {
            total: seconds(1000),
            startup: seconds(5),
            idle: seconds(10),
            tool: seconds(60),
            compact: seconds(30),
        };
        LimitClock::start(limits, seconds(100))
    }

    fn bash() -> Phase {
        Phase::Tool { names: vec!["Bash".to_owned()] }
    }

    #[test]
    fn startup_limit_applies_until_first_output_then_idle_then_total() {
        let mut clock = clock();
        assert_eq!(clock.next(), Some((seconds(105), Limit::Startup)));
        clock.note_stderr(seconds(104));
        assert_eq!(clock.next(), Some((seconds(105), Limit::Startup)), "stderr is not an answer");
        clock.note_stdout(seconds(104));
        assert_eq!(clock.next(), Some((seconds(114), Limit::Idle)));
        clock.note_stderr(seconds(108));
        assert_eq!(clock.next(), Some((seconds(118), Limit::Idle)), "stderr is a sign of life");
        clock.note_stdout(seconds(1095));
        assert_eq!(clock.next(), Some((seconds(1100), Limit::Total)));
    }

    #[test]
    fn each_phase_has_its_own_limit_counted_from_its_start() {
        let mut clock = clock();
        clock.note_stdout(seconds(100));
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
    fn repeated_phase_is_no_sign_of_life() {
        let mut clock = clock();
        clock.enter(bash(), seconds(100));
        clock.enter(bash(), seconds(150));
        assert_eq!(clock.next(), Some((seconds(160), Limit::Tool)));
        clock.note_stderr(seconds(155));
        assert_eq!(clock.next(), Some((seconds(215), Limit::Tool)), "output of a tool is one");
    }

    #[test]
    fn limit_fires_once_and_never_when_there_is_none() {
        let mut clock = clock();
        assert!(clock.is_total_exceeded(seconds(1100)) && !clock.is_total_exceeded(seconds(1099)));
        clock.enter(bash(), seconds(101));
        assert_eq!(clock.exceed(Limit::Tool), Overrun { limit: Limit::Tool, value: seconds(60), phase: bash() });
        assert_eq!(clock.next(), None);
        assert!(!clock.is_total_exceeded(seconds(1100)));
        assert_eq!(LimitClock::start(Limits::NONE, seconds(100)).next(), None);
    }
}
