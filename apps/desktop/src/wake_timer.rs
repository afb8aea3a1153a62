//! Timer that wakes the event loop at a given time.
//!
//! `ControlFlow::WaitUntil` alone is not enough: on Linux the loop checks the time only after another event has
//! arrived.

use std::time::{Duration, Instant};

use gtk::glib;

#[derive(Debug, Default)]
pub(crate) struct WakeTimer {
    next: Option<Instant>,
}

impl WakeTimer {
    /// Wakes the loop at `at`. A timer that was set for an earlier time still fires; that wake-up is spurious and
    /// harmless.
    pub(crate) fn set(&mut self, at: Instant) {
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next && next <= at) {
            return;
        }
        self.next = Some(at);
        // glib timers count whole milliseconds. Round up, because a loop that wakes early finds nothing to do.
        let wait = at.saturating_duration_since(now) + Duration::from_millis(1);
        glib::timeout_add_local_once(wait, || {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_idle_loop_once_and_not_early_when_set_twice() {
        let context = glib::MainContext::default();
        let _guard = context.acquire().unwrap();
        let (mut timer, at) = (WakeTimer::default(), Instant::now() + Duration::from_millis(50));
        timer.set(at);
        timer.set(at);
        assert!(context.iteration(true));
        assert!(Instant::now() >= at);
        assert!(!context.iteration(false), "only one timer is pending");
    }
}
