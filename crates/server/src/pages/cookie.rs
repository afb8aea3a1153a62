//! The conversation of a request: identified by a cookie for browsers, shared by all clients without cookies, and separate for each
//! key if keys are required.

use http::HeaderMap;
use http::header::{COOKIE, HeaderValue, ORIGIN, SET_COOKIE, USER_AGENT};
use uuid::Uuid;

use crate::auth;
use crate::config::ServerConfig;

const COOKIE_NAME: &str = "trunkline_chat";

const COOKIE_MAX_AGE_SECONDS: u32 = 365 * 24 * 60 * 60;

/// Id of the conversation of all clients without cookies. No cookie can name it, because it is not a UUID.
const SHARED: &str = "shared";

/// Origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visitor {
    /// A browser with our cookie.
    Known(Uuid),
    /// A browser without our cookie, which gets one.
    New(Uuid),
    /// A program without cookies.
    Shared,
}

impl Visitor {
    /// Identifies the visitor of a request.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match Self::of_browser(headers) {
            Self::New(_) if !is_browser(headers) => Self::Shared,
            visitor @ (Self::Known(_) | Self::New(_) | Self::Shared) => visitor,
        }
    }

    /// Identifies the visitor of the page itself, which only a browser loads. The page's script returns with the cookie.
    pub(crate) fn of_browser(headers: &HeaderMap) -> Self {
        from_cookies(headers).map_or_else(|| Self::New(Uuid::new_v4()), Self::Known)
    }

    /// Adds the cookie of a new browser. Scripts cannot read it, and requests from other sites do not carry it.
    pub(crate) fn introduce(self, headers: &mut HeaderMap) {
        if let Self::New(id) = self {
            let cookie =
                format!("{COOKIE_NAME}={id}; Path=/; Max-Age={COOKIE_MAX_AGE_SECONDS}; HttpOnly; SameSite=Strict");
            headers.append(SET_COOKIE, HeaderValue::from_str(&cookie).expect("hexadecimal is a header value"));
        }
    }

    /// Id of the visitor's conversation, usable as a file name. Each key has its own conversation.
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

/// Whether a request without our cookie comes from a browser: it has other cookies, sends an origin, or has a browser's user agent. A
/// browser must never join the shared conversation.
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

/// Id of a conversation: letters, digits and hyphens.
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
    pairs.filter(|(name, _)| *name == COOKIE_NAME).find_map(|(_, value)| uuid_v4(value))
}

fn uuid_v4(text: &str) -> Option<Uuid> {
    // Only the notation that we write ourselves is accepted.
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
    fn only_our_own_cookies_are_accepted() {
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
    fn each_new_browser_gets_its_own_cookie() {
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
    fn only_programs_share_the_conversation_without_a_cookie() {
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
    fn each_key_has_its_own_conversation() {
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
