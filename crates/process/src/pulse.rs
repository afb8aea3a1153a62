//! The time that this process was there to see.
//!
//! A gateway can be stopped (`SIGSTOP`, a debugger), starved, or put to sleep with its laptop. What a run did meanwhile
//! nobody looked at, so it is no silence of the run's. On Linux tokio's clock does not count a suspended machine; that
//! a stopped process is not counted either is this file's doing, and holds for both, whatever the clock does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::janitor::Janitor;

/// How often it beats.
const BEAT: Duration = Duration::from_secs(1);

/// How late a beat may be on a busy machine before the rest counts as absence.
const LATE: Duration = Duration::from_secs(2);

/// Measures time by beats: none passes beyond the next one that is due.
#[derive(Debug)]
pub(crate) struct Pulse {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    last: Instant,
    /// What was missed so far.
    absent: Duration,
}

impl Pulse {
    pub(crate) fn start(janitor: &Janitor) -> Arc<Self> {
        let pulse = Arc::new(Self::new(Instant::now()));
        janitor.spawn(keep_beating(Arc::downgrade(&pulse), janitor.closing().clone()));
        pulse
    }

    fn new(now: Instant) -> Self {
        Self { began: now, state: Mutex::new(State { last: now, absent: Duration::ZERO }) }
    }

    /// How much time was watched until now. Whoever wakes up before the next beat sees no more than one who wakes after
    /// it.
    pub(crate) fn watched(&self) -> Duration {
        self.watched_at(Instant::now())
    }

    fn watched_at(&self, now: Instant) -> Duration {
        let state = self.state();
        now.min(state.last + BEAT + LATE).duration_since(self.began).saturating_sub(state.absent)
    }

    fn beat(&self, now: Instant) {
        let mut state = self.state();
        let missed = now.duration_since(state.last).saturating_sub(BEAT + LATE);
        if !missed.is_zero() {
            state.absent += missed;
            tracing::warn!("this process stood still for {missed:.0?}: no run is blamed for that");
        }
        state.last = now;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_beating(pulse: Weak<Pulse>, closing: tokio_util::sync::CancellationToken) {
    while closing.run_until_cancelled(sleep(BEAT)).await.is_some() {
        let Some(pulse) = pulse.upgrade() else { return };
        pulse.beat(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn case_71_absence_is_not_watched_time() {
        let start = Instant::now();
        let pulse = Pulse::new(start);
        let at = |n| start + seconds(n);
        assert_eq!(pulse.watched_at(at(1)), seconds(1));
        pulse.beat(at(1));
        pulse.beat(at(2));
        // Stopped for an hour: neither who wakes before the beat nor who wakes after it sees that hour.
        assert_eq!(pulse.watched_at(at(3602)), seconds(5));
        pulse.beat(at(3602));
        assert_eq!(pulse.watched_at(at(3602)), seconds(5));
        pulse.beat(at(3603));
        assert_eq!(pulse.watched_at(at(3604)), seconds(7));
    }

    #[test]
    fn a_busy_machine_is_not_absence() {
        let start = Instant::now();
        let pulse = Pulse::new(start);
        for n in 1..100 {
            pulse.beat(start + 3 * seconds(n));
        }
        assert_eq!(pulse.watched_at(start + seconds(297)), seconds(297));
    }

    proptest::proptest! {
        #[test]
        fn it_never_goes_back(steps in proptest::collection::vec((0_u64..20_000, proptest::bool::ANY), 1..50)) {
            let mut now = Instant::now();
            let pulse = Pulse::new(now);
            let mut before = Duration::ZERO;
            for (millis, beats) in steps {
                now += Duration::from_millis(millis);
                let seen = pulse.watched_at(now);
                proptest::prop_assert!(seen >= before);
                if beats {
                    pulse.beat(now);
                    proptest::prop_assert_eq!(pulse.watched_at(now), seen);
                }
                before = seen;
            }
        }
    }
}
