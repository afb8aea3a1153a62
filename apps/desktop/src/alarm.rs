//! Wakes the event loop at a time. `WaitUntil` alone does not: on Linux the loop looks at the time only when something else
//! has happened.

use std::time::{Duration, Instant};

use gtk::glib;

#[derive(Debug, Default)]
pub(crate) struct Alarm {
    set: Option<Instant>,
}

impl Alarm {
    /// One that was set for an earlier time goes off as well, and nothing comes of it.
    pub(crate) fn set(&mut self, at: Instant) {
        let now = Instant::now();
        if self.set.is_some_and(|set| now < set && set <= at) {
            return;
        }
        self.set = Some(at);
        // Timers count whole milliseconds, and one that is early finds nothing to do.
        let wait = at.saturating_duration_since(now) + Duration::from_millis(1);
        glib::timeout_add_local_once(wait, || {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_in_which_nothing_happens_is_woken_once_and_not_before_its_time() {
        let context = glib::MainContext::default();
        let _ours = context.acquire().unwrap();
        let (mut alarm, at) = (Alarm::default(), Instant::now() + Duration::from_millis(50));
        alarm.set(at);
        alarm.set(at);
        assert!(context.iteration(true));
        assert!(Instant::now() >= at);
        assert!(!context.iteration(false), "there is one timer");
    }
}
