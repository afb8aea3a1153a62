//! Origins of web pages that may use the API from a browser.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::keys::Keys;

/// Hosts of this machine, of which every port can be allowed at once.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

const EXAMPLE: &str = "such as https://app.example.com";

/// One origin, or one host of this machine on every port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedOrigin {
    /// Scheme and host in the form in which browsers send them, with the port unless it is the scheme's default.
    base: String,
    ports: Ports,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ports {
    /// The port of the base.
    One,
    /// Every port, after a base without one.
    Every,
}

/// Reason why a text cannot be allowed as an origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidOrigin(String);

impl AllowedOrigin {
    /// Parses `scheme://host`, `scheme://host:port`, or `http://localhost:*`.
    pub fn parse(text: &str) -> Result<Self, InvalidOrigin> {
        let (text, invalid) = (text.trim(), |why: String| Err(InvalidOrigin(why)));
        if text == "*" {
            return invalid(format!("`*` would let every web page use your agents: name each origin, {EXAMPLE}"));
        }
        if text.eq_ignore_ascii_case("null") || text.to_ascii_lowercase().starts_with("file:") {
            let why = "is shared by local files and by sandboxed frames of every site: serve the page over HTTP and name its origin";
            return invalid(format!("the origin `null` {why}, {EXAMPLE}"));
        }
        let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
            return invalid(format!("{text:?} is not an origin: write its scheme, host and port, {EXAMPLE}"));
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority != rest {
            return invalid(format!("{text:?} is not an origin, which has no path: write {scheme}://{authority}"));
        }
        let scheme = scheme.to_ascii_lowercase();
        let (host, port) = split_port(authority);
        if host.contains('*') {
            let why = "`*` may only stand for the port of this machine, as in http://localhost:*";
            return invalid(format!("{text:?}: {why}; name each origin, {EXAMPLE}"));
        }
        let Some(host) = canonical_host(host) else {
            return invalid(format!("{text:?} is not an origin: its host is not a name or an address in ASCII"));
        };
        let base = format!("{scheme}://{host}");
        let is_web = matches!(scheme.as_str(), "http" | "https");
        match (port, port.map(str::parse::<u16>)) {
            (None, _) => Ok(Self { base, ports: Ports::One }),
            (Some("*"), _) if is_web && LOCAL_HOSTS.contains(&host.as_str()) => Ok(Self { base, ports: Ports::Every }),
            (Some("*"), _) => {
                invalid(format!("{text:?}: every port can be allowed for {} only", LOCAL_HOSTS.join(", ")))
            }
            (_, Some(Ok(80))) if scheme == "http" => Ok(Self { base, ports: Ports::One }),
            (_, Some(Ok(443))) if scheme == "https" => Ok(Self { base, ports: Ports::One }),
            (_, Some(Ok(port))) if port > 0 => Ok(Self { base: format!("{base}:{port}"), ports: Ports::One }),
            _ => invalid(format!("{text:?} is not an origin: its port is not a number from 1 to 65535")),
        }
    }

    /// Whether this is the origin of a request.
    fn matches(&self, origin: &str) -> bool {
        let Some((base, rest)) = origin.split_at_checked(self.base.len()) else { return false };
        base.eq_ignore_ascii_case(&self.base)
            && match self.ports {
                Ports::One => rest.is_empty(),
                Ports::Every => {
                    rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
                }
            }
    }
}

impl fmt::Display for AllowedOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = match self.ports {
            Ports::One => "",
            Ports::Every => ":*",
        };
        write!(f, "{}{port}", self.base)
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Splits `host:port`. The host may be an IPv6 address in brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        Some(_) | None => (authority, None),
    }
}

/// A host in the form in which browsers send it.
fn canonical_host(host: &str) -> Option<String> {
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return Some(format!("[{}]", address.parse::<Ipv6Addr>().ok()?));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (!host.is_empty() && host.bytes().all(plain)).then(|| host.to_ascii_lowercase())
}

/// All allowed origins. Can be replaced while the server runs.
#[derive(Debug, Clone, Default)]
pub struct AllowedOrigins(Arc<ArcSwap<Vec<AllowedOrigin>>>);

impl AllowedOrigins {
    pub fn new(origins: Vec<AllowedOrigin>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(origins)))
    }

    /// Replaces the origins. Returns whether that is a change.
    pub fn replace(&self, origins: Vec<AllowedOrigin>) -> bool {
        let changed = **self.0.load() != origins;
        self.0.store(Arc::new(origins));
        changed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }

    pub(crate) fn allow(&self, origin: &str) -> bool {
        self.0.load().iter().any(|allowed| allowed.matches(origin))
    }
}

/// Error for an allowed origin without keys: every script on its pages would run agents.
#[derive(Debug, thiserror::Error)]
#[error(
    "web pages of {0} are allowed to use the API, and there are no API keys: set TRUNKLINE_API_KEYS or --keys-file, \
     or remove the origin from --allow-origin and server.allowOrigins"
)]
pub struct OriginWithoutKeys(String);

/// Checks that there are keys if there is an allowed origin.
pub fn check_origins(origins: &[AllowedOrigin], keys: &Keys) -> Result<(), OriginWithoutKeys> {
    match origins.first() {
        Some(origin) if keys.is_empty() => Err(OriginWithoutKeys(origin.to_string())),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_read_in_the_form_in_which_browsers_send_it() {
        for (text, expected) in [
            ("https://app.example.com", "https://app.example.com"),
            (" HTTPS://App.Example.com:443 ", "https://app.example.com"),
            ("http://app.example.com:80", "http://app.example.com"),
            ("http://app.example.com:443", "http://app.example.com:443"),
            ("http://localhost:*", "http://localhost:*"),
            ("https://127.0.0.1:*", "https://127.0.0.1:*"),
            ("http://[0:0::1]:*", "http://[::1]:*"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("http://[2001:DB8::1]", "http://[2001:db8::1]"),
            ("chrome-extension://abcdefghijklmnop", "chrome-extension://abcdefghijklmnop"),
            ("tauri://localhost", "tauri://localhost"),
        ] {
            assert_eq!(AllowedOrigin::parse(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn text_that_is_not_an_origin_is_refused_with_the_reason() {
        for (text, expected) in [
            ("*", "every web page"),
            ("null", "sandboxed frames"),
            ("file:///home/page.html", "sandboxed frames"),
            ("https://*", "`*` may only stand for the port"),
            ("https://*.example.com", "`*` may only stand for the port"),
            ("*://localhost:3000", "is not an origin: write its scheme"),
            ("http://app.example.com:*", "every port can be allowed for localhost, 127.0.0.1, [::1] only"),
            ("http://sub.localhost:*", "every port can be allowed"),
            ("tauri://localhost:*", "every port can be allowed"),
            ("localhost:3000", "is not an origin: write its scheme"),
            ("", "is not an origin: write its scheme"),
            ("://x", "is not an origin: write its scheme"),
            ("https://app.example.com/", "no path: write https://app.example.com"),
            ("https://app.example.com/chat?x", "no path: write https://app.example.com"),
            ("https://user@app.example.com", "its host is not"),
            ("https://", "its host is not"),
            ("https://:80", "its host is not"),
            ("https://b\u{fc}cher.example", "its host is not"),
            ("https://a b", "its host is not"),
            ("http://[::x]", "its host is not"),
            ("http://localhost:0", "its port is not"),
            ("http://localhost:65536", "its port is not"),
            ("http://localhost:", "its port is not"),
            ("http://localhost:80x", "its port is not"),
        ] {
            let error = AllowedOrigin::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn origin_is_allowed_if_it_matches_exactly_or_on_every_port() {
        let origins = ["https://app.example.com", "http://localhost:*", "http://other.example:8080"];
        let origins = AllowedOrigins::new(origins.map(|text| AllowedOrigin::parse(text).unwrap()).to_vec());
        for (origin, allowed) in [
            ("https://app.example.com", true),
            ("HTTPS://APP.example.com", true),
            ("http://app.example.com", false),
            ("https://app.example.com:444", false),
            ("https://app.example.com.evil.example", false),
            ("https://evil.example", false),
            ("http://localhost", true),
            ("http://localhost:5173", true),
            ("http://localhost:", false),
            ("http://localhost:x", false),
            ("http://localhost:80.evil.example", false),
            ("http://localhost.evil.example", false),
            ("https://localhost:5173", false),
            ("http://127.0.0.1:5173", false),
            ("http://other.example:8080", true),
            ("http://other.example", false),
            ("http://other.example:80", false),
            ("null", false),
            ("", false),
            ("\u{fc}", false),
        ] {
            assert_eq!(origins.allow(origin), allowed, "{origin}");
        }
        assert!(origins.replace(Vec::new()) && !origins.replace(Vec::new()));
        assert!(!origins.allow("http://localhost") && origins.is_empty());
    }

    #[test]
    fn allowed_origin_needs_keys() {
        let origins = [AllowedOrigin::parse("http://localhost:*").unwrap()];
        assert!(check_origins(&[], &Keys::default()).is_ok());
        assert!(check_origins(&origins, &Keys::new(["k"])).is_ok());
        let error = check_origins(&origins, &Keys::default()).unwrap_err().to_string();
        assert!(error.contains("http://localhost:*") && error.contains("TRUNKLINE_API_KEYS"), "{error}");
    }
}
