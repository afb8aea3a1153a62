//! Who may come in: keys, and the two ways a web page could reach a server on the user's own machine.
//!
//! A page may name us by a host of its own (DNS rebinding) or send requests across sites (CSRF). Both are refused by the
//! headers browsers cannot forge, with keys and without.

pub(crate) mod wrong_keys;

use std::net::{IpAddr, SocketAddr};

use http::header::{AUTHORIZATION, HOST, ORIGIN, USER_AGENT};
use http::{HeaderMap, Request};
use subtle::{Choice, ConstantTimeEq};
use trunkline_core::turn::Owner;
use trunkline_wire::error::ApiError;

use crate::config::ServerConfig;

/// Names under which people pass keys in addresses, where logs and histories keep them.
const KEY_PARAMETERS: [&str; 5] = ["api_key", "api-key", "apikey", "key", "access_token"];

/// The longest name of a host that an error repeats.
const MAX_HOST_BYTES: usize = 253;

/// The keys that open the door, as digests: of equal length, and useless to who reads them.
#[derive(Clone, Default)]
pub struct Keys {
    digests: Vec<[u8; blake3::OUT_LEN]>,
}

impl Keys {
    /// Empty keys are no keys.
    pub fn new<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Self {
        let digest = |key: K| {
            let key = key.as_ref().trim();
            (!key.is_empty()).then(|| *blake3::hash(key.as_bytes()).as_bytes())
        };
        Self { digests: keys.into_iter().filter_map(digest).collect() }
    }

    /// Adds a key by its BLAKE3 digest in hexadecimal, as a file of hashes has it, and says whom it opens for.
    pub fn add_digest(&mut self, hexadecimal: &str) -> Result<Owner, BadDigest> {
        let digest = blake3::Hash::from_hex(hexadecimal.trim()).map_err(|_| BadDigest)?;
        self.digests.push(*digest.as_bytes());
        Ok(owner_of(&digest))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Takes the same time whatever the key has in common with ours.
    fn open_for(&self, key: &str) -> bool {
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

/// A server that others can reach, and that asks nobody for a key, would run agents for anyone.
#[derive(Debug, thiserror::Error)]
#[error("{0} can be reached from other machines, and there are no keys: set keys or listen on 127.0.0.1")]
pub struct OpenToAll(pub SocketAddr);

/// The rule that any bind but loopback needs keys.
pub fn check_bind(address: SocketAddr, keys: &Keys) -> Result<(), OpenToAll> {
    if address.ip().to_canonical().is_loopback() || !keys.is_empty() { Ok(()) } else { Err(OpenToAll(address)) }
}

/// A connection's two ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    /// The client's own address.
    pub(crate) from: IpAddr,
    /// Ours: what it dialled.
    pub(crate) dialled: IpAddr,
}

/// Whether a request may go on to its handler, and whose it is.
pub(crate) fn admit<B>(config: &ServerConfig, peer: Peer, request: &Request<B>) -> Result<Owner, ApiError> {
    let headers = request.headers();
    let host = text(headers, HOST.as_str());
    // A target in absolute form overrides `Host`; both must be ours.
    let named = [host, request.uri().authority().map(http::uri::Authority::as_str)];
    if host.is_none() || !named.into_iter().flatten().all(|name| is_ours(name, config, peer)) {
        return Err(unknown_host(named.into_iter().flatten().find(|name| !is_ours(name, config, peer))));
    }
    let path = request.uri().path();
    if peer.dialled.to_canonical().is_loopback() || is_pages(path) {
        refuse_other_sites(headers, host.unwrap_or_default(), path)?;
    }
    // The page itself holds nothing; it asks for a key when it needs one.
    let open = is_health(path) || path == "/";
    if config.keys.is_empty() || open { Ok(Owner::default()) } else { check_key(&config.keys, request) }
}

pub(crate) fn is_health(path: &str) -> bool {
    matches!(path, "/health" | "/health/")
}

/// The chat page's own endpoints. They know their visitors by a cookie, which browsers send by themselves.
fn is_pages(path: &str) -> bool {
    matches!(path.strip_suffix('/').unwrap_or(path), "/chat" | "/clear" | "/stop")
}

fn refuse_other_sites(headers: &HeaderMap, host: &str, path: &str) -> Result<(), ApiError> {
    let own = |origin: &[u8]| {
        let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_bytes()))
    };
    if headers.get_all(ORIGIN).iter().any(|origin| !own(origin.as_bytes())) {
        return Err(ApiError::forbidden("forbidden_origin", "requests from web pages of other origins are refused"));
    }
    match fetch_site(headers) {
        FetchSite::Absent | FetchSite::Own => Ok(()),
        // A link to the page; the page itself holds nothing.
        FetchSite::Sibling if path == "/" => Ok(()),
        FetchSite::Sibling | FetchSite::Foreign => {
            Err(ApiError::forbidden("forbidden_origin", "requests from other sites are refused"))
        }
    }
}

/// The relation that a browser reports between a request and the page it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FetchSite {
    /// No browser, or one that does not say.
    Absent,
    /// A page of ours, or an address that the user typed.
    Own,
    /// Another port or subdomain of the same site.
    Sibling,
    /// Another site, or something that no browser says.
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

/// Refuses a GET that costs something, unless it was meant: any page can make a browser send one, with an image or a
/// prefetch. Programs send what they like and are let through.
pub(crate) fn refuse_unmeant(headers: &HeaderMap) -> Result<(), ApiError> {
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

/// Names the option that makes a host known. A name that is no name is not repeated.
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

fn check_key<B>(keys: &Keys, request: &Request<B>) -> Result<Owner, ApiError> {
    let in_address = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        KEY_PARAMETERS.iter().any(|key| key.eq_ignore_ascii_case(name))
    };
    if request.uri().query().is_some_and(|query| query.split('&').any(in_address)) {
        return Err(incorrect_key("one in the address is not accepted, send it as Authorization: Bearer"));
    }
    match given_key(request.headers()) {
        Some(key) if keys.open_for(key) => Ok(owner_of(&blake3::hash(key.as_bytes()))),
        Some(_) => Err(incorrect_key("it is not one of this gateway's keys")),
        None => Err(incorrect_key("there is none, send Authorization: Bearer YOUR_KEY")),
    }
}

/// Begins with OpenAI's words: clients tell a wrong key from a wrong request by them.
fn incorrect_key(why: &str) -> ApiError {
    ApiError::unauthorized(format!("Incorrect API key provided: {why}"))
}

/// Whoever holds a key, told apart from the others by half of its digest's digest: nothing that is kept elsewhere.
fn owner_of(digest: &blake3::Hash) -> Owner {
    let digest = blake3::hash(digest.as_bytes());
    Owner::of_key(&digest.to_hex()[..32])
}

/// The key that a request comes with, whether it opens or not.
pub(crate) fn given_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = text(headers, AUTHORIZATION.as_str()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    bearer.or_else(|| text(headers, "x-api-key"))
}

/// A header's value, unless it is there twice or is not text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        (Some(_), Some(_)) | (None, _) => None,
    }
}

#[cfg(test)]
mod tests;
