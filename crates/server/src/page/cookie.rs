//! Which conversation a request is about: the browser's own, told by a cookie, and its key's own, if keys are needed.

use http::HeaderMap;
use http::header::{COOKIE, HeaderValue, SET_COOKIE};
use uuid::Uuid;

use crate::auth;
use crate::config::Config;

const NAME: &str = "trunkline_chat";

const A_YEAR: u32 = 365 * 24 * 60 * 60;

/// A browser, as far as we know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Visitor {
    id: Uuid,
    known: bool,
}

impl Visitor {
    /// Who the cookie says, or somebody new.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match from_cookies(headers) {
            Some(id) => Self { id, known: true },
            None => Self { id: Uuid::new_v4(), known: false },
        }
    }

    /// The cookie that makes a new one known. Scripts cannot read it, and no other site can have it sent.
    pub(crate) fn introduce(self, headers: &mut HeaderMap) {
        if !self.known {
            let cookie = format!("{NAME}={}; Path=/; Max-Age={A_YEAR}; HttpOnly; SameSite=Strict", self.id);
            headers.append(SET_COOKIE, HeaderValue::from_str(&cookie).expect("hexadecimal is a header value"));
        }
    }

    /// The name of this visitor's conversation, fit to be a file's. Whoever comes with another key has another one.
    pub(crate) fn chat(self, config: &Config, headers: &HeaderMap) -> ChatId {
        let key = (!config.keys.is_empty()).then(|| auth::given_key(headers)).flatten();
        match key {
            None => ChatId(self.id.to_string()),
            Some(key) => {
                let owner = blake3::keyed_hash(blake3::hash(key.as_bytes()).as_bytes(), self.id.as_bytes());
                ChatId(format!("{}-{}", self.id, &owner.to_hex()[..16]))
            }
        }
    }
}

/// Hexadecimal digits and hyphens.
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
            assert_eq!((visitor.known, visitor.id.to_string() == ID), (known, known), "{cookie}");
            let mut answer = HeaderMap::new();
            visitor.introduce(&mut answer);
            assert_eq!(answer.contains_key(SET_COOKIE), !known, "{cookie}");
        }
    }

    #[test]
    fn a_new_visitor_is_somebody_else_each_time() {
        let none = HeaderMap::new();
        assert_ne!(Visitor::of(&none), Visitor::of(&none));
        let mut answer = HeaderMap::new();
        let visitor = Visitor::of(&none);
        visitor.introduce(&mut answer);
        let cookie = answer[SET_COOKIE].to_str().unwrap();
        let expected = "Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict";
        assert_eq!(cookie, format!("trunkline_chat={}; {expected}", visitor.id));
    }

    #[test]
    fn a_conversation_is_its_keys_own() {
        let chat = |config: &Config, key: &str| {
            let headers = headers(&[("cookie", &format!("trunkline_chat={ID}")), ("authorization", key)]);
            Visitor::of(&headers).chat(config, &headers).0
        };
        let open = Config::default();
        assert_eq!((chat(&open, "Bearer a").as_str(), chat(&open, "Bearer b").as_str()), (ID, ID));
        let keyed = Config { keys: Keys::new(["a", "b"]), ..Config::default() };
        let (a, b) = (chat(&keyed, "Bearer a"), chat(&keyed, "Bearer b"));
        assert_eq!((a.len(), a == chat(&keyed, "bearer  a")), (ID.len() + 17, true));
        assert!(a != b && a.starts_with(ID) && b.starts_with(ID), "{a} {b}");
        assert!(a.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'));
    }
}
