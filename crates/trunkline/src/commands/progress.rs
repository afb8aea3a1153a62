//! A status line on the terminal for a run that prints nothing. It is erased before other output.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use trunkline_core::phase::Phase;

use crate::repl::plain::plain;

/// Silence before the line is shown.
const SHOW_AFTER: Duration = Duration::from_secs(3);

const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The status line. Draws nothing if stderr is not a terminal.
pub(crate) struct ProgressLine {
    terminal: bool,
    shown: bool,
    next: Instant,
}

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: false, next: Instant::now() + SHOW_AFTER }
    }

    /// Returns when the line is to be drawn. Cancel safe.
    pub(crate) async fn due(&self) {
        if !self.terminal {
            std::future::pending::<()>().await;
        }
        sleep_until(self.next).await;
    }

    pub(crate) fn show(&mut self, (phase, elapsed): (Phase, Duration)) {
        self.next = Instant::now() + REFRESH_INTERVAL;
        if let Some(line) = line(&phase, elapsed) {
            self.shown = true;
            let _ = write!(io::stderr(), "\r\x1b[2K· {line}");
        }
    }

    /// Erases the line. To be called before anything else is printed.
    pub(crate) fn clear(&mut self) {
        self.next = Instant::now() + SHOW_AFTER;
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

fn line(phase: &Phase, elapsed: Duration) -> Option<String> {
    let seconds = elapsed.as_secs();
    let time = if seconds < 60 { format!("{seconds} s") } else { format!("{} min {} s", seconds / 60, seconds % 60) };
    // Short enough for a narrow terminal: a line that wraps could not be erased.
    let doing: String = plain(&phase.to_string()).chars().take(50).collect();
    (*phase != Phase::Ended).then(|| format!("{doing} · {time}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_phase_and_time_and_no_control_characters() {
        let bash = Phase::Tool { names: vec!["Bash".to_owned()] };
        assert_eq!(line(&bash, Duration::from_secs(42)).as_deref(), Some("running Bash · 42 s"));
        assert_eq!(line(&bash, Duration::from_secs(125)).as_deref(), Some("running Bash · 2 min 5 s"));
        assert_eq!(line(&Phase::Ended, Duration::ZERO), None);
        let evil = Phase::Tool { names: vec!["\x1b[31m".repeat(100)] };
        assert!(!line(&evil, Duration::ZERO).unwrap().contains('\x1b'));
    }
}
