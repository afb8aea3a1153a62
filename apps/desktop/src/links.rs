//! Where a navigation leads: to the gateway, to the user's own browser, or nowhere.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leads {
    /// It is the gateway's.
    Home,
    /// For the user's browser, or for whatever writes their mail.
    Away,
    Nowhere,
}

/// `origin` is the gateway's, such as `http://127.0.0.1:8765`.
pub(crate) fn leads(url: &str, origin: &str) -> Leads {
    // The slash matters: `http://127.0.0.1:8765@example.org/` and `http://127.0.0.1:87650/` are others'.
    let home = url.strip_prefix(origin).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let away = ["http://", "https://", "mailto:"].iter().any(|scheme| url.starts_with(scheme));
    match (home, away) {
        (true, _) => Leads::Home,
        (false, true) => Leads::Away,
        (false, false) => Leads::Nowhere,
    }
}

/// Nobody clicks on more links than that, but a page can say that they did.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a page may have something opened.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    last: Option<Instant>,
}

impl Pace {
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        let allowed = self.last.is_none_or(|last| now.duration_since(last) >= PAUSE);
        if allowed {
            self.last = Some(now);
        }
        allowed
    }
}

/// Opens an address that leads away with the user's own program for it; says why not.
pub(crate) fn open(url: &str) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "the desktop's way to open an address is a program")]
    let started = Command::new("xdg-open").arg(url).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut opener = started.map_err(|error| format!("cannot open {url}: xdg-open: {error}"))?;
    // It may be the browser itself, and stay as long.
    drop(thread::spawn(move || opener.wait()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_leaves_all_the_time_leaves_once_a_second() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let allowed = (0..25).filter(|n| pace.allows(start + Duration::from_millis(n * 100)));
        assert_eq!(allowed.collect::<Vec<_>>(), [0, 10, 20]);
    }

    #[test]
    fn only_the_gateway_is_home() {
        let origin = "http://127.0.0.1:8765";
        for (url, expected) in [
            ("http://127.0.0.1:8765", Leads::Home),
            ("http://127.0.0.1:8765/", Leads::Home),
            ("http://127.0.0.1:8765/v1/runs?limit=1#x", Leads::Home),
            ("http://127.0.0.1:87650/", Leads::Away),
            ("http://127.0.0.1:8765@example.org/", Leads::Away),
            ("http://127.0.0.1:8765.example.org/", Leads::Away),
            ("https://127.0.0.1:8765/", Leads::Away),
            ("http://localhost:8765/", Leads::Away),
            ("https://example.org/?http://127.0.0.1:8765/", Leads::Away),
            ("mailto:someone@example.org", Leads::Away),
            ("file:///etc/passwd", Leads::Nowhere),
            ("javascript:alert(1)", Leads::Nowhere),
            ("data:text/html,x", Leads::Nowhere),
            ("blob:http://127.0.0.1:8765/x", Leads::Nowhere),
            ("ssh://example.org", Leads::Nowhere),
            ("about:blank", Leads::Nowhere),
            ("--help", Leads::Nowhere),
            ("", Leads::Nowhere),
        ] {
            assert_eq!(leads(url, origin), expected, "{url}");
        }
    }
}
