//! API keys, and the clients that they identify.

use http::header::AUTHORIZATION;
use http::{HeaderMap, Request};
use subtle::{Choice, ConstantTimeEq};
use trunkline_core::turn::ClientId;
use trunkline_wire::error::ApiError;

use super::request::text;

/// Query parameters in which clients pass keys, where logs and histories would keep them.
const KEY_PARAMETERS: [&str; 5] = ["api_key", "api-key", "apikey", "key", "access_token"];

/// Headers other than `Authorization` in which clients pass keys: Anthropic's and Google's.
const KEY_HEADERS: [&str; 2] = ["x-api-key", "x-goog-api-key"];

/// Valid keys, stored as digests: of equal length, and useless to an attacker who reads them.
#[derive(Clone, Default)]
pub struct Keys {
    digests: Vec<[u8; blake3::OUT_LEN]>,
}

impl Keys {
    /// Creates the set of valid keys. Empty strings are ignored.
    pub fn new<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Self {
        let digest = |key: K| {
            let key = key.as_ref().trim();
            (!key.is_empty()).then(|| *blake3::hash(key.as_bytes()).as_bytes())
        };
        Self { digests: keys.into_iter().filter_map(digest).collect() }
    }

    /// Adds a key by its hexadecimal BLAKE3 digest, and returns the client that it identifies.
    pub fn add_digest(&mut self, hexadecimal: &str) -> Result<ClientId, BadDigest> {
        let digest = blake3::Hash::from_hex(hexadecimal.trim()).map_err(|_| BadDigest)?;
        self.digests.push(*digest.as_bytes());
        Ok(owner_of(&digest))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Checks a key in constant time.
    fn accepts(&self, key: &str) -> bool {
        let digest = blake3::hash(key.as_bytes());
        let one_of = |found: Choice, known: &[u8; blake3::OUT_LEN]| found | known.ct_eq(digest.as_bytes());
        self.digests.iter().fold(Choice::from(0), one_of).into()
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.digests.len())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("not a BLAKE3 digest: 64 hexadecimal digits are expected")]
pub struct BadDigest;

/// The client of a request with a valid key.
pub(super) fn check_key<B>(keys: &Keys, request: &Request<B>) -> Result<ClientId, ApiError> {
    let in_address = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        KEY_PARAMETERS.iter().any(|key| key.eq_ignore_ascii_case(name))
    };
    if request.uri().query().is_some_and(|query| query.split('&').any(in_address)) {
        return Err(incorrect_key("one in the address is not accepted, send it as Authorization: Bearer"));
    }
    match given_key(request.headers()) {
        Some(key) if keys.accepts(key) => Ok(owner_of(&blake3::hash(key.as_bytes()))),
        Some(_) => Err(incorrect_key("it is not one of this gateway's keys")),
        None => Err(incorrect_key("there is none, send Authorization: Bearer YOUR_KEY")),
    }
}

/// Starts with OpenAI's wording, by which clients recognise a wrong key.
fn incorrect_key(why: &str) -> ApiError {
    ApiError::unauthorized(format!("Incorrect API key provided: {why}"))
}

/// The client of a key: half of the digest of its digest, a value that is stored nowhere else.
fn owner_of(digest: &blake3::Hash) -> ClientId {
    let digest = blake3::hash(digest.as_bytes());
    ClientId::of_key(&digest.to_hex()[..32])
}

/// The key of a request, valid or not.
pub(crate) fn given_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = text(headers, AUTHORIZATION.as_str()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    bearer.or_else(|| KEY_HEADERS.iter().find_map(|name| text(headers, name)))
}
