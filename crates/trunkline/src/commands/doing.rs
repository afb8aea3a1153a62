//! A line on the terminal that says what a silent run is doing, and is gone when there is something to show.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use trunkline_core::phase::Phase;

use crate::repl::plain::plain;

/// Shorter silences need no words.
const PATIENCE: Duration = Duration::from_secs(3);

const EVERY: Duration = Duration::from_secs(1);

/// Draws nothing where stderr is not a terminal.
pub(crate) struct Doing {
    terminal: bool,
    shown: bool,
    next: Instant,
}

impl Doing {
    pub(crate) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: false, next: Instant::now() + PATIENCE }
    }

    /// Returns when it is time to say something. Cancel safe.
    pub(crate) async fn due(&self) {
        if !self.terminal {
            std::future::pending::<()>().await;
        }
        sleep_until(self.next).await;
    }

    pub(crate) fn show(&mut self, (phase, elapsed): (Phase, Duration)) {
        self.next = Instant::now() + EVERY;
        if let Some(line) = line(&phase, elapsed) {
            self.shown = true;
            let _unread = write!(io::stderr(), "\r\x1b[2K· {line}");
        }
    }

    /// Before anything else is written.
    pub(crate) fn clear(&mut self) {
        self.next = Instant::now() + PATIENCE;
        if std::mem::take(&mut self.shown) {
            let _unread = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

fn line(phase: &Phase, elapsed: Duration) -> Option<String> {
    let seconds = elapsed.as_secs();
    let time = if seconds < 60 { format!("{seconds} s") } else { format!("{} min {} s", seconds / 60, seconds % 60) };
    // One line of a narrow terminal: what is longer could not be taken back.
    let doing: String = plain(&phase.to_string()).chars().take(50).collect();
    (*phase != Phase::Ended).then(|| format!("{doing} · {time}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let bash = Phase::Tool { names: vec!["Bash".to_owned()] };
        assert_eq!(line(&bash, Duration::from_secs(42)).as_deref(), Some("running Bash · 42 s"));
        assert_eq!(line(&bash, Duration::from_secs(125)).as_deref(), Some("running Bash · 2 min 5 s"));
        assert_eq!(line(&Phase::Ended, Duration::ZERO), None);
        let evil = Phase::Tool { names: vec!["\x1b[31m".repeat(100)] };
        assert!(!line(&evil, Duration::ZERO).unwrap().contains('\x1b'));
    }
}
