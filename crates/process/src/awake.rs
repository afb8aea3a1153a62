//! Elapsed time, excluding periods when this process was stopped.
//!
//! A gateway can be stopped (`SIGSTOP`, a debugger), starved, or suspended with its machine. Output that a program
//! wrote meanwhile was not observed, so that time must not count as silence of the program. On Linux tokio's clock does
//! not count a suspended machine. This clock also excludes a stopped process, and excludes both whatever the underlying
//! clock does.
//!
//! A task ticks once a second. A tick that comes late by more than [`MAX_DELAY`] shows that the process was stopped, and
//! the excess is excluded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::janitor::Janitor;

/// Interval between two ticks.
const TICK: Duration = Duration::from_secs(1);

/// Delay of a tick that is normal on a busy machine. The rest counts as time when the process was stopped.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// Clock that stops while no ticks arrive.
#[derive(Debug)]
pub(crate) struct AwakeClock {
    began: Instant,
    state: Mutex<TickState>,
}

#[derive(Debug)]
struct TickState {
    /// Time of the last tick.
    last: Instant,
    /// Sum of the periods when this process was stopped.
    stopped: Duration,
}

impl AwakeClock {
    pub(crate) fn start(janitor: &Janitor) -> Arc<Self> {
        let clock = Arc::new(Self::new(Instant::now()));
        janitor.spawn(keep_ticking(Arc::downgrade(&clock), janitor.closing().clone()));
        clock
    }

    fn new(now: Instant) -> Self {
        Self { began: now, state: Mutex::new(TickState { last: now, stopped: Duration::ZERO }) }
    }

    /// Returns the time that has elapsed since the clock was started. After a stop, a task that wakes before the next tick
    /// gets no more than one that wakes after it.
    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed_at(Instant::now())
    }

    fn elapsed_at(&self, now: Instant) -> Duration {
        let state = self.state();
        now.min(state.last + TICK + MAX_DELAY).duration_since(self.began).saturating_sub(state.stopped)
    }

    fn tick(&self, now: Instant) {
        let mut state = self.state();
        let missed = now.duration_since(state.last).saturating_sub(TICK + MAX_DELAY);
        if !missed.is_zero() {
            state.stopped += missed;
            tracing::warn!(
                "this process was stopped for {missed:.0?}: that time does not count against the limits of runs"
            );
        }
        state.last = now;
    }

    fn state(&self) -> MutexGuard<'_, TickState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_ticking(clock: Weak<AwakeClock>, closing: tokio_util::sync::CancellationToken) {
    while closing.run_until_cancelled(sleep(TICK)).await.is_some() {
        let Some(clock) = clock.upgrade() else { return };
        clock.tick(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn case_71_time_does_not_elapse_while_process_is_stopped() {
        let start = Instant::now();
        let clock = AwakeClock::new(start);
        let at = |n| start + seconds(n);
        assert_eq!(clock.elapsed_at(at(1)), seconds(1));
        clock.tick(at(1));
        clock.tick(at(2));
        // Stopped for an hour: the hour is excluded both before and after the next tick.
        assert_eq!(clock.elapsed_at(at(3602)), seconds(5));
        clock.tick(at(3602));
        assert_eq!(clock.elapsed_at(at(3602)), seconds(5));
        clock.tick(at(3603));
        assert_eq!(clock.elapsed_at(at(3604)), seconds(7));
    }

    #[test]
    fn late_ticks_are_not_a_stop_when_machine_is_busy() {
        let start = Instant::now();
        let clock = AwakeClock::new(start);
        for n in 1..100 {
            clock.tick(start + 3 * seconds(n));
        }
        assert_eq!(clock.elapsed_at(start + seconds(297)), seconds(297));
    }

    proptest::proptest! {
        #[test]
        fn time_never_goes_back(steps in proptest::collection::vec((0_u64..20_000, proptest::bool::ANY), 1..50)) {
            let mut now = Instant::now();
            let clock = AwakeClock::new(now);
            let mut before = Duration::ZERO;
            for (millis, ticks) in steps {
                now += Duration::from_millis(millis);
                let seen = clock.elapsed_at(now);
                proptest::prop_assert!(seen >= before);
                if ticks {
                    clock.tick(now);
                    proptest::prop_assert_eq!(clock.elapsed_at(now), seen);
                }
                before = seen;
            }
        }
    }
}
