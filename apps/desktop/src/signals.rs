//! The signals that ask a program to end: the window goes as if it had been closed.

use std::fs;
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tao::event_loop::EventLoopProxy;

use crate::app::Said;

pub(crate) fn listen(said: EventLoopProxy<Said>) -> Result<()> {
    let heeded = [SIGTERM, SIGINT].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP));
    let mut signals = Signals::new(heeded).context("cannot listen for signals")?;
    let hear = move || {
        let mut heard = signals.forever();
        heard.next();
        let _gone = said.send_event(Said::Quit);
        // Whoever asks twice does not want to wait; a gateway of ours sees that we are gone.
        heard.next();
        std::process::exit(1);
    };
    thread::Builder::new().name("signals".into()).spawn(hear).context("cannot start a thread")?;
    Ok(())
}

/// Whether whoever started us has seen to it that a signal means nothing, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
