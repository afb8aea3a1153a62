//! Navigation policy: which links stay in the window, open in the user's browser, or are blocked.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkTarget {
    /// A page of the gateway; it opens in the window.
    Gateway,
    /// Opens in the user's browser or mail program.
    External,
    Blocked,
}

/// Classifies a URL. `origin` is the gateway's, such as `http://127.0.0.1:8765`.
pub(crate) fn link_target(url: &str, origin: &str) -> LinkTarget {
    // The slash matters: `http://127.0.0.1:8765@example.org/` and `http://127.0.0.1:87650/` are other servers.
    let gateway = url.strip_prefix(origin).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let external = ["http://", "https://", "mailto:"].iter().any(|scheme| url.starts_with(scheme));
    match (gateway, external) {
        (true, _) => LinkTarget::Gateway,
        (false, true) => LinkTarget::External,
        (false, false) => LinkTarget::Blocked,
    }
}

/// Minimum time between two links that are opened. A user does not click faster, but a script can.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Limits how often the page can open external links.
#[derive(Debug, Default)]
pub(crate) struct LinkThrottle {
    last: Option<Instant>,
}

impl LinkThrottle {
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        let allowed = self.last.is_none_or(|last| now.duration_since(last) >= MIN_INTERVAL);
        if allowed {
            self.last = Some(now);
        }
        allowed
    }
}

/// Opens an external URL with the user's preferred program.
pub(crate) fn open(url: &str) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "xdg-open is the desktop's interface for opening URLs")]
    let started = Command::new("xdg-open").arg(url).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut opener = started.map_err(|error| format!("cannot open {url}: xdg-open: {error}"))?;
    // Reaped on a thread: xdg-open may turn into the browser itself and run for as long as it does.
    drop(thread::spawn(move || opener.wait()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_allows_one_link_per_second() {
        let (mut throttle, start) = (LinkThrottle::default(), Instant::now());
        let allowed = (0..25).filter(|n| throttle.allows(start + Duration::from_millis(n * 100)));
        assert_eq!(allowed.collect::<Vec<_>>(), [0, 10, 20]);
    }

    #[test]
    fn only_urls_of_the_gateway_origin_stay_in_the_window() {
        let origin = "http://127.0.0.1:8765";
        for (url, expected) in [
            ("http://127.0.0.1:8765", LinkTarget::Gateway),
            ("http://127.0.0.1:8765/", LinkTarget::Gateway),
            ("http://127.0.0.1:8765/v1/runs?limit=1#x", LinkTarget::Gateway),
            ("http://127.0.0.1:87650/", LinkTarget::External),
            ("http://127.0.0.1:8765@example.org/", LinkTarget::External),
            ("http://127.0.0.1:8765.example.org/", LinkTarget::External),
            ("https://127.0.0.1:8765/", LinkTarget::External),
            ("http://localhost:8765/", LinkTarget::External),
            ("https://example.org/?http://127.0.0.1:8765/", LinkTarget::External),
            ("mailto:someone@example.org", LinkTarget::External),
            ("file:///etc/passwd", LinkTarget::Blocked),
            ("javascript:alert(1)", LinkTarget::Blocked),
            ("data:text/html,x", LinkTarget::Blocked),
            ("blob:http://127.0.0.1:8765/x", LinkTarget::Blocked),
            ("ssh://example.org", LinkTarget::Blocked),
            ("about:blank", LinkTarget::Blocked),
            ("--help", LinkTarget::Blocked),
            ("", LinkTarget::Blocked),
        ] {
            assert_eq!(link_target(url, origin), expected, "{url}");
        }
    }
}
