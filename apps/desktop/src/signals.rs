//! The signals that ask a program to end: the window goes as if it had been closed.

use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tao::event_loop::EventLoopProxy;

use crate::app::Said;

pub(crate) fn listen(said: EventLoopProxy<Said>) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot listen for signals")?;
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
