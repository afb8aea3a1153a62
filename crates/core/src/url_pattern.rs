//! Patterns that allow URLs: an exact URL, or everything below a folder of a host.
//!
//! URLs are compared by their parts, after the same parsing that HTTP clients use. A comparison of texts would let
//! `https://mcp.example.com@evil.test/` pass for `https://mcp.example.com*`.

use std::fmt;

use url::{Host, Url};

/// Pattern for the URLs that a client may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlPattern {
    url: Url,
    /// Whether the path may continue.
    below: bool,
}

/// Reason why a pattern is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlPatternError {
    #[error("it is not an http or https URL with a host and without a user name or a fragment")]
    NotPlain,
    #[error("`*` may only follow a `/` after the host, at the end: https://mcp.example.com/*")]
    Wildcard,
}

impl UrlPattern {
    /// Reads a pattern as it is written in the configuration.
    pub fn parse(written: &str) -> Result<Self, UrlPatternError> {
        let (text, below) = match written.strip_suffix('*') {
            Some(text) => (text, true),
            None => (written, false),
        };
        let after_scheme = text.split_once("://").map_or("", |(_, rest)| rest);
        if text.contains('*') || (below && (!text.ends_with('/') || !after_scheme.contains('/'))) {
            return Err(UrlPatternError::Wildcard);
        }
        let url = plain_url(text).ok_or(UrlPatternError::NotPlain)?;
        if below && url.query().is_some() {
            return Err(UrlPatternError::NotPlain);
        }
        Ok(Self { url, below })
    }

    /// Whether the pattern allows a URL that [`plain_url`] has parsed.
    #[must_use]
    pub fn allows(&self, url: &Url) -> bool {
        let same_place = self.url.scheme() == url.scheme()
            && self.url.host() == url.host()
            && self.url.port_or_known_default() == url.port_or_known_default();
        same_place
            && if self.below {
                url.path().starts_with(self.url.path()) && !hides_a_separator(url.path())
            } else {
                self.url.path() == url.path() && self.url.query() == url.query()
            }
    }
}

impl fmt::Display for UrlPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.url, if self.below { "*" } else { "" })
    }
}

/// Parses the URL of a server: http or https with a host, and no user name, password or fragment. Its text is the one to pass on:
/// another parser cannot read it differently.
#[must_use]
pub fn plain_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let has_host = url.host().is_some_and(|host| host != Host::Domain(""));
    let plain = matches!(url.scheme(), "http" | "https")
        && has_host
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none()
        // The parser drops an empty user name, as in `https://@host/`.
        && !authority(text).contains('@');
    plain.then_some(url)
}

/// The part of a URL between the scheme and the path, as it was written.
fn authority(text: &str) -> &str {
    let rest = text.split_once(':').map_or(text, |(_, rest)| rest).trim_start_matches(['/', '\\']);
    rest.split(['/', '\\', '?', '#']).next().unwrap_or_default()
}

/// Whether a path contains an encoded slash, which a server may decode and then leave the folder.
fn hides_a_separator(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    ["%2f", "%5c", "%25"].iter().any(|hidden| path.contains(hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(pattern: &str, url: &str) -> bool {
        let pattern = UrlPattern::parse(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        plain_url(url).is_some_and(|url| pattern.allows(&url))
    }

    #[test]
    fn allows_exact_urls_and_everything_below_a_folder() {
        for (pattern, url) in [
            ("https://mcp.example.com/mcp", "https://mcp.example.com/mcp"),
            ("https://mcp.example.com/mcp", "HTTPS://MCP.example.com:443/mcp"),
            ("https://mcp.example.com", "https://mcp.example.com/"),
            ("https://mcp.example.com/mcp?team=a", "https://mcp.example.com/mcp?team=a"),
            ("https://mcp.example.com/*", "https://mcp.example.com/"),
            ("https://mcp.example.com/*", "https://mcp.example.com/a/b?c=d"),
            ("https://mcp.example.com/teams/*", "https://mcp.example.com/teams/a"),
            ("http://127.0.0.1:8080/*", "http://127.0.0.1:8080/mcp"),
            ("http://127.0.0.1:8080/*", "http://0x7f000001:8080/mcp"),
            ("http://[::1]/*", "http://[0:0::1]/mcp"),
            ("https://bücher.test/*", "https://xn--bcher-kva.test/mcp"),
        ] {
            assert!(allowed(pattern, url), "{pattern} should allow {url}");
        }
    }

    #[test]
    fn refuses_every_other_url() {
        for (pattern, url) in [
            ("https://mcp.example.com/*", "https://mcp.example.com.evil.test/"),
            ("https://mcp.example.com/*", "https://mcp.example.com@evil.test/"),
            ("https://mcp.example.com/*", "https://mcp.example.com:x@evil.test/"),
            ("https://mcp.example.com/*", "https://user@mcp.example.com/"),
            ("https://mcp.example.com/*", "https://@mcp.example.com/"),
            ("https://mcp.example.com/*", "https://evil.test\\@mcp.example.com/"),
            ("https://mcp.example.com/*", "https://evil.test/https://mcp.example.com/"),
            ("https://mcp.example.com/*", "https://evil.test/?https://mcp.example.com/"),
            ("https://mcp.example.com/*", "https://evil.test#https://mcp.example.com/"),
            ("https://mcp.example.com/*", "https://mcp.example.com/#x"),
            ("https://mcp.example.com/*", "http://mcp.example.com/"),
            ("https://mcp.example.com/*", "https://mcp.example.com:8443/"),
            ("https://mcp.example.com/*", "https://sub.mcp.example.com/"),
            ("https://mcp.example.com/*", "https://mcp.example.com./"),
            ("https://mcp.example.com/*", "file:///etc/passwd"),
            ("https://mcp.example.com/*", "javascript:alert(1)"),
            ("https://mcp.example.com/*", "//mcp.example.com/"),
            ("https://mcp.example.com/*", "mcp.example.com"),
            ("https://mcp.example.com/*", ""),
            ("https://mcp.example.com/teams/*", "https://mcp.example.com/teams"),
            ("https://mcp.example.com/teams/*", "https://mcp.example.com/teams-evil"),
            ("https://mcp.example.com/teams/*", "https://mcp.example.com/teams/../admin"),
            ("https://mcp.example.com/teams/*", "https://mcp.example.com/teams/%2e%2e/admin"),
            ("https://mcp.example.com/teams/*", "https://mcp.example.com/teams/..%2fadmin"),
            ("https://mcp.example.com/teams/*", "https://mcp.example.com/teams/..%252Fadmin"),
            ("https://mcp.example.com/teams/*", "https://mcp.example.com/teams\\..\\admin"),
            ("https://mcp.example.com/mcp", "https://mcp.example.com/mcp/"),
            ("https://mcp.example.com/mcp", "https://mcp.example.com/mcp2"),
            ("https://mcp.example.com/mcp", "https://mcp.example.com/mcp?x=1"),
            ("https://mcp.example.com/mcp?team=a", "https://mcp.example.com/mcp?team=b"),
            ("http://127.0.0.1:8080/*", "http://127.0.0.1:80800/"),
        ] {
            assert!(!allowed(pattern, url), "{pattern} should refuse {url}");
        }
    }

    #[test]
    fn refuses_patterns_that_would_allow_too_much() {
        for pattern in [
            "*",
            "https://*",
            "https://*/",
            "https://mcp.example.com*",
            "https://*.example.com/",
            "https://mcp.example.com/a*",
            "https://mcp.example.com/*/b",
            "https://mcp.example.com/**",
        ] {
            assert_eq!(UrlPattern::parse(pattern), Err(UrlPatternError::Wildcard), "{pattern}");
        }
        for pattern in
            ["", "mcp.example.com/", "ftp://x.test/*", "https://u@x.test/*", "https://x.test/?a/*", "https:///*"]
        {
            assert!(UrlPattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
