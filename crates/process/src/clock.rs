//! When a run has taken too long. Pure: it is told what happened and when, and says what is due next.

use std::time::Duration;

use tokio::time::Instant;

use crate::spec::{LimitKind, Limits};

/// The limits of one run and what is needed to apply them.
#[derive(Debug)]
pub(crate) struct Clock {
    limits: Limits,
    started: Instant,
    last_sign: Instant,
    heard: bool,
    tool_running: bool,
    /// A limit fires once, and is the last: the caller will end the run, and that has deadlines of its own.
    fired: bool,
}

impl Clock {
    pub(crate) fn start(limits: Limits, now: Instant) -> Self {
        Self { limits, started: now, last_sign: now, heard: false, tool_running: false, fired: false }
    }

    /// The run printed something on stdout.
    pub(crate) fn spoke(&mut self, now: Instant) {
        self.heard = true;
        self.last_sign = now;
    }

    /// The run printed something on stderr: it lives, but it has not begun to answer.
    pub(crate) fn stirred(&mut self, now: Instant) {
        self.last_sign = now;
    }

    pub(crate) fn tool_running(&mut self, running: bool, now: Instant) {
        if self.tool_running && !running {
            self.last_sign = now;
        }
        self.tool_running = running;
    }

    /// The limit that will be passed first if nothing happens.
    pub(crate) fn next(&self) -> Option<(Instant, LimitKind)> {
        if self.fired {
            return None;
        }
        let after = |start: Instant, limit: Duration, kind| start.checked_add(limit).map(|at| (at, kind));
        let total = after(self.started, self.limits.total, LimitKind::Total);
        let silence = match (self.heard, self.tool_running) {
            (false, _) => after(self.started, self.limits.startup, LimitKind::Startup),
            (true, false) => after(self.last_sign, self.limits.idle, LimitKind::Idle),
            (true, true) => None,
        };
        [total, silence].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    pub(crate) fn total_is_over(&self, now: Instant) -> bool {
        !self.fired && now.duration_since(self.started) >= self.limits.total
    }

    pub(crate) fn fired(&mut self) {
        self.fired = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn clock(now: Instant) -> Clock {
        Clock::start(Limits { total: seconds(100), idle: seconds(10), startup: seconds(5) }, now)
    }

    #[test]
    fn startup_until_the_first_word_then_idle_then_total() {
        let start = Instant::now();
        let mut clock = clock(start);
        assert_eq!(clock.next(), Some((start + seconds(5), LimitKind::Startup)));
        clock.stirred(start + seconds(4));
        assert_eq!(clock.next(), Some((start + seconds(5), LimitKind::Startup)), "stderr is not an answer");
        clock.spoke(start + seconds(4));
        assert_eq!(clock.next(), Some((start + seconds(14), LimitKind::Idle)));
        clock.stirred(start + seconds(8));
        assert_eq!(clock.next(), Some((start + seconds(18), LimitKind::Idle)), "stderr is a sign of life");
        clock.spoke(start + seconds(95));
        assert_eq!(clock.next(), Some((start + seconds(100), LimitKind::Total)));
    }

    #[test]
    fn a_tool_suspends_idle_and_its_end_restarts_it() {
        let start = Instant::now();
        let mut clock = clock(start);
        clock.spoke(start);
        clock.tool_running(true, start);
        assert_eq!(clock.next(), Some((start + seconds(100), LimitKind::Total)));
        clock.tool_running(false, start + seconds(50));
        assert_eq!(clock.next(), Some((start + seconds(60), LimitKind::Idle)));
    }

    #[test]
    fn a_limit_fires_once_and_none_is_none() {
        let start = Instant::now();
        let mut clock = clock(start);
        assert!(clock.total_is_over(start + seconds(100)) && !clock.total_is_over(start + seconds(99)));
        clock.fired();
        assert_eq!(clock.next(), None);
        assert!(!clock.total_is_over(start + seconds(100)));
        assert_eq!(Clock::start(Limits::NONE, start).next(), None);
    }
}
