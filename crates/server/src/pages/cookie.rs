//! Which conversation a request is about: a browser's own, told by a cookie, or the one that all clients without cookies
//! share; and its key's own, if keys are needed.

use http::HeaderMap;
use http::header::{COOKIE, HeaderValue, ORIGIN, SET_COOKIE, USER_AGENT};
use uuid::Uuid;

use crate::auth;
use crate::config::ServerConfig;

const NAME: &str = "trunkline_chat";

const A_YEAR: u32 = 365 * 24 * 60 * 60;

/// The conversation of all clients that keep no cookies. No cookie can name it: it is no UUID.
const SHARED: &str = "shared";

/// Where a request comes from, as far as we know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visitor {
    /// A browser that has our cookie.
    Known(Uuid),
    /// A browser that has none, and gets one.
    New(Uuid),
    /// A program that keeps no cookies.
    Shared,
}

impl Visitor {
    /// The browser of the cookie, a new browser, or a program that keeps no cookies.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match Self::of_browser(headers) {
            Self::New(_) if !is_browser(headers) => Self::Shared,
            visitor @ (Self::Known(_) | Self::New(_) | Self::Shared) => visitor,
        }
    }

    /// The same for a request that only a browser has a use for: the page. Its script comes back with the cookie.
    pub(crate) fn of_browser(headers: &HeaderMap) -> Self {
        from_cookies(headers).map_or_else(|| Self::New(Uuid::new_v4()), Self::Known)
    }

    /// The cookie that makes a new one known. Scripts cannot read it, and no other site can have it sent.
    pub(crate) fn introduce(self, headers: &mut HeaderMap) {
        if let Self::New(id) = self {
            let cookie = format!("{NAME}={id}; Path=/; Max-Age={A_YEAR}; HttpOnly; SameSite=Strict");
            headers.append(SET_COOKIE, HeaderValue::from_str(&cookie).expect("hexadecimal is a header value"));
        }
    }

    /// The name of this visitor's conversation, fit to be a file's. Whoever comes with another key has another one.
    pub(crate) fn chat(self, config: &ServerConfig, headers: &HeaderMap) -> ChatId {
        let key = (!config.keys.is_empty()).then(|| auth::given_key(headers)).flatten();
        let (name, bytes) = match &self {
            Self::Known(id) | Self::New(id) => (id.to_string(), id.as_bytes().as_slice()),
            Self::Shared => (SHARED.to_owned(), SHARED.as_bytes()),
        };
        match key {
            None => ChatId(name),
            Some(key) => {
                let owner = blake3::keyed_hash(blake3::hash(key.as_bytes()).as_bytes(), bytes);
                ChatId(format!("{name}-{}", &owner.to_hex()[..16]))
            }
        }
    }
}

/// Whether a request without our cookie comes from a browser all the same: one that has cookies, says where its page is
/// from, or calls itself one. Such a browser must never join the conversation that others share.
fn is_browser(headers: &HeaderMap) -> bool {
    let tells = |name: &http::HeaderName| {
        name == COOKIE
            || name == ORIGIN
            || name.as_str().starts_with("sec-fetch-")
            || name.as_str().starts_with("sec-ch-")
    };
    let agent = headers.get(USER_AGENT).map(HeaderValue::as_bytes);
    headers.keys().any(tells) || agent.is_some_and(|agent| agent.starts_with(b"Mozilla/"))
}

/// Letters, digits and hyphens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ChatId(String);

impl ChatId {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn from_cookies(headers: &HeaderMap) -> Option<Uuid> {
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == NAME).find_map(|(_, value)| uuid_v4(value))
}

fn uuid_v4(text: &str) -> Option<Uuid> {
    // Only the one form that we write: others are as valid, but nobody has them from us.
    let id = Uuid::try_parse(text).ok()?;
    (id.get_version_num() == 4 && id.to_string() == text).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Keys;

    const ID: &str = "0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_what_we_gave_is_recognised() {
        for (cookie, known) in [
            (format!("trunkline_chat={ID}"), true),
            (format!("a=b; trunkline_chat={ID};c=d"), true),
            (format!("trunkline_chat=../../etc/passwd; trunkline_chat={ID}"), true),
            (format!("other={ID}"), false),
            (format!("trunkline_chat={}", ID.to_uppercase()), false),
            (format!("trunkline_chat={{{ID}}}"), false),
            (format!("trunkline_chat={}", ID.replace('-', "")), false),
            (format!("trunkline_chat={}", ID.replace("-49c6", "-19c6")), false),
            ("trunkline_chat=../../etc/passwd".to_owned(), false),
            ("trunkline_chat=".to_owned(), false),
        ] {
            let visitor = Visitor::of(&headers(&[("cookie", &cookie)]));
            let expected = Visitor::Known(ID.parse().unwrap());
            assert_eq!(visitor == expected, known, "{cookie}: {visitor:?}");
            assert!(known || matches!(visitor, Visitor::New(_)), "{cookie}: {visitor:?}");
            let mut answer = HeaderMap::new();
            visitor.introduce(&mut answer);
            assert_eq!(answer.contains_key(SET_COOKIE), !known, "{cookie}");
        }
    }

    #[test]
    fn a_new_visitor_is_somebody_else_each_time() {
        let none = HeaderMap::new();
        assert_ne!(Visitor::of_browser(&none), Visitor::of_browser(&none));
        let mut answer = HeaderMap::new();
        let visitor = Visitor::of_browser(&none);
        visitor.introduce(&mut answer);
        let cookie = answer[SET_COOKIE].to_str().unwrap();
        let Visitor::New(id) = visitor else { panic!("{visitor:?}") };
        let expected = "Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict";
        assert_eq!(cookie, format!("trunkline_chat={id}; {expected}"));
    }

    #[test]
    fn only_a_program_shares_when_there_is_no_cookie() {
        for (name, value, shares) in [
            ("user-agent", "curl/8.5.0", true),
            ("accept", "*/*", true),
            ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)", false),
            ("sec-fetch-site", "same-origin", false),
            ("origin", "http://127.0.0.1:8765", false),
            ("cookie", "other=1", false),
        ] {
            let visitor = Visitor::of(&headers(&[(name, value)]));
            assert_eq!(visitor == Visitor::Shared, shares, "{name}: {value}");
            let mut answer = HeaderMap::new();
            visitor.introduce(&mut answer);
            assert_eq!(answer.contains_key(SET_COOKIE), !shares, "{name}: {value}");
        }
    }

    #[test]
    fn a_conversation_is_its_keys_own() {
        let chat = |config: &ServerConfig, key: &str| {
            let headers = headers(&[("cookie", &format!("trunkline_chat={ID}")), ("authorization", key)]);
            Visitor::of(&headers).chat(config, &headers).0
        };
        let open = ServerConfig::default();
        assert_eq!((chat(&open, "Bearer a").as_str(), chat(&open, "Bearer b").as_str()), (ID, ID));
        let keyed = ServerConfig { keys: Keys::new(["a", "b"]), ..ServerConfig::default() };
        let (a, b) = (chat(&keyed, "Bearer a"), chat(&keyed, "Bearer b"));
        assert_eq!((a.len(), a == chat(&keyed, "bearer  a")), (ID.len() + 17, true));
        assert!(a != b && a.starts_with(ID) && b.starts_with(ID), "{a} {b}");
        assert!(a.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'));
    }
}
