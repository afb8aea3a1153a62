//! Authentication by keys, and protection against web pages that try to reach a server on the user's own machine.
//!
//! A page may use a host name of its own that resolves to us (DNS rebinding), or send requests across sites (CSRF). Both are refused
//! by headers that a page cannot forge, with keys and without. Pages of allowed origins may send requests with a key.

pub(crate) mod cors;
pub(crate) mod keys;
pub(crate) mod origin;
mod request;
pub(crate) mod wrong_keys;

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, ORIGIN, USER_AGENT};
use http::{HeaderMap, Request};
use trunkline_core::turn::ClientId;
use trunkline_wire::error::ApiError;

use crate::config::ServerConfig;
use cors::{AllowedPage, PageRequest};
use keys::check_key;
use request::{is_own_origin, is_pages, text};

pub(crate) use keys::given_key;
pub use keys::{BadDigest, Keys};
pub use origin::{AllowedOrigin, AllowedOrigins, InvalidOrigin, OriginWithoutKeys, check_origins};

/// Maximum length of a host name that an error message repeats.
const MAX_HOST_BYTES: usize = 253;

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
    // The page and the description of the API contain no data. The page asks for a key when it needs one.
    let open = is_health(path) || matches!(path, "/" | "/openapi.json" | "/v1/openapi.json");
    if config.keys.is_empty() || open { Ok(ClientId::default()) } else { check_key(&config.keys, request) }
}

pub(crate) fn is_health(path: &str) -> bool {
    matches!(path, "/health" | "/health/")
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

#[cfg(test)]
mod tests;
