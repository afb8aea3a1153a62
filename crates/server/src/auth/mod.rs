//! Authentication by keys, and protection against web pages that try to reach a server on the user's own machine.
//!
//! A page may use a host name of its own that resolves to us (DNS rebinding), or send requests across sites (CSRF). Both are refused
//! by headers that a page cannot forge, with keys and without. Pages of allowed origins may send requests with a key.

pub(crate) mod cors;
mod origin;
pub(crate) mod wrong_keys;

use std::net::{IpAddr, SocketAddr};

use http::header::{AUTHORIZATION, HOST, ORIGIN, USER_AGENT};
use http::{HeaderMap, Request};
use subtle::{Choice, ConstantTimeEq};
use trunkline_core::turn::ClientId;
use trunkline_wire::error::ApiError;

use crate::config::ServerConfig;
use cors::{AllowedPage, PageRequest};

pub use origin::{AllowedOrigin, AllowedOrigins, InvalidOrigin, OriginWithoutKeys, check_origins};

/// Query parameters in which clients pass keys, where logs and histories would keep them.
const KEY_PARAMETERS: [&str; 5] = ["api_key", "api-key", "apikey", "key", "access_token"];

/// Headers other than `Authorization` in which clients pass keys: Anthropic's and Google's.
const KEY_HEADERS: [&str; 2] = ["x-api-key", "x-goog-api-key"];

/// Maximum length of a host name that an error message repeats.
const MAX_HOST_BYTES: usize = 253;

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

/// Error for a server without keys on a public address: it would run agents for anyone.
#[derive(Debug, thiserror::Error)]
#[error("{0} can be reached from other machines, and there are no keys: set keys or listen on 127.0.0.1")]
pub struct OpenToAll(pub SocketAddr);

/// Checks that every address except loopback has keys.
pub fn check_bind(address: SocketAddr, keys: &Keys) -> Result<(), OpenToAll> {
    if address.ip().to_canonical().is_loopback() || !keys.is_empty() { Ok(()) } else { Err(OpenToAll(address)) }
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    /// Address of the client.
    pub(crate) from: IpAddr,
    /// Our address, to which the client connected.
    pub(crate) dialled: IpAddr,
}

/// Decides whether a request reaches its handler. Returns its client. `page` is the allowed page that sent it, if one did.
pub(crate) fn admit<B>(
    config: &ServerConfig,
    peer: Peer,
    page: Option<&AllowedPage>,
    request: &Request<B>,
) -> Result<ClientId, ApiError> {
    let headers = request.headers();
    let host = text(headers, HOST.as_str());
    // A target in absolute form overrides `Host`; both must name us.
    let named = [host, request.uri().authority().map(http::uri::Authority::as_str)];
    if host.is_none() || !named.into_iter().flatten().all(|name| is_ours(name, config, peer)) {
        return Err(unknown_host(named.into_iter().flatten().find(|name| !is_ours(name, config, peer))));
    }
    let path = request.uri().path();
    match page.map(|page| page.asks) {
        Some(PageRequest::Preflight) => return Ok(ClientId::default()),
        Some(PageRequest::Actual) => return check_key(&config.keys, request),
        None => {}
    }
    if peer.dialled.to_canonical().is_loopback() || is_pages(path) || cors::is_preflight(request) {
        refuse_other_sites(headers, host.unwrap_or_default(), path)?;
    }
    // The page contains no data, and asks for a key when it needs one.
    let open = is_health(path) || path == "/";
    if config.keys.is_empty() || open { Ok(ClientId::default()) } else { check_key(&config.keys, request) }
}

pub(crate) fn is_health(path: &str) -> bool {
    matches!(path, "/health" | "/health/")
}

/// Whether a path is an endpoint of the chat page. These identify visitors by a cookie, which browsers send by themselves.
fn is_pages(path: &str) -> bool {
    matches!(path.strip_suffix('/').unwrap_or(path), "/chat" | "/clear" | "/stop")
}

fn refuse_other_sites(headers: &HeaderMap, host: &str, path: &str) -> Result<(), ApiError> {
    if let Some(foreign) = headers.get_all(ORIGIN).iter().find(|origin| !is_own_origin(origin.as_bytes(), host)) {
        return Err(cors::forbidden(foreign.to_str().ok(), path));
    }
    match fetch_site(headers) {
        FetchSite::Absent | FetchSite::Own => Ok(()),
        // A link to the page, which contains no data.
        FetchSite::Sibling if path == "/" => Ok(()),
        FetchSite::Sibling | FetchSite::Foreign => {
            let error = ApiError::forbidden("forbidden_origin", "requests from other sites are refused");
            Err(error
                .hint("a page can use fetch() if the gateway was started with --allow-origin and the page's origin"))
        }
    }
}

/// Whether an origin is that of our own page, under the name by which the request calls us.
fn is_own_origin(origin: &[u8], host: &str) -> bool {
    let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_bytes()))
}

/// The relation that a browser reports between a request and the page it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FetchSite {
    /// Not a browser, or one that does not send the header.
    Absent,
    /// Our own page, or an address that the user typed.
    Own,
    /// Another port or subdomain of the same site.
    Sibling,
    /// Another site, or an unknown value.
    Foreign,
}

fn fetch_site(headers: &HeaderMap) -> FetchSite {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    let Some(site) = sites.next() else { return FetchSite::Absent };
    let says = |word: &[u8]| site.as_bytes().eq_ignore_ascii_case(word);
    match sites.next() {
        None if says(b"same-origin") || says(b"none") => FetchSite::Own,
        None if says(b"same-site") => FetchSite::Sibling,
        None | Some(_) => FetchSite::Foreign,
    }
}

/// Refuses a GET with a cost unless the user meant it: any page can make a browser send one through an image or a prefetch. Requests
/// of programs pass.
pub(crate) fn refuse_unintended(headers: &HeaderMap) -> Result<(), ApiError> {
    let browser = text(headers, USER_AGENT.as_str()).is_some_and(|agent| agent.starts_with("Mozilla/"));
    let ahead = ["sec-purpose", "purpose", "x-moz"].iter().any(|name| headers.contains_key(*name));
    match fetch_site(headers) {
        FetchSite::Absent if !browser && !ahead => Ok(()),
        FetchSite::Own if !ahead => Ok(()),
        FetchSite::Absent | FetchSite::Own | FetchSite::Sibling | FetchSite::Foreign => {
            let message = "a request that costs tokens is accepted from programs and from this server's own page only";
            Err(ApiError::forbidden("forbidden_origin", message))
        }
    }
}

/// Error for an unknown host, with the option that allows it. An invalid name is not repeated.
fn unknown_host(named: Option<&str>) -> ApiError {
    let plain = |name: &&str| {
        (1..=MAX_HOST_BYTES).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let name = named.map(without_port).filter(plain);
    let message = match name {
        Some(name) => format!("unknown Host {name}: to serve under that name, start the gateway with --host {name}"),
        None => "missing or invalid Host: to serve under another name, start the gateway with --host NAME".to_owned(),
    };
    ApiError::forbidden("forbidden_host", message).hint("TRUNKLINE_HOSTS is the same as --host, for several names")
}

fn is_ours(authority: &str, config: &ServerConfig, peer: Peer) -> bool {
    let name = without_port(authority);
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    match address.parse::<IpAddr>() {
        Ok(ip) if ip.to_canonical().is_loopback() || ip.to_canonical() == peer.dialled.to_canonical() => true,
        Ok(_) | Err(_) => {
            name.eq_ignore_ascii_case("localhost") || config.hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
        }
    }
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) && !name.ends_with(':') => name,
        Some(_) | None => authority,
    }
}

fn check_key<B>(keys: &Keys, request: &Request<B>) -> Result<ClientId, ApiError> {
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

/// Value of a header, unless the header is repeated or not text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        (Some(_), Some(_)) | (None, _) => None,
    }
}

#[cfg(test)]
mod tests;
