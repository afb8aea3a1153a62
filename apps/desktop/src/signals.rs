//! Termination signals: they quit the program without asking.

use std::fs;
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tao::event_loop::EventLoopProxy;

use crate::app::AppEvent;

pub(crate) fn listen(events: EventLoopProxy<AppEvent>) -> Result<()> {
    let handled = [SIGTERM, SIGINT].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP));
    let mut signals = Signals::new(handled).context("cannot listen for signals")?;
    let wait = move || {
        let mut received = signals.forever();
        received.next();
        let _ = events.send_event(AppEvent::Quit);
        // A second signal exits at once. A gateway that we started stops by itself when its stdin closes.
        received.next();
        std::process::exit(1);
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("cannot start a thread")?;
    Ok(())
}

/// Whether this process was started with the signal ignored, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
