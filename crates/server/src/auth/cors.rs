//! Requests of web pages whose origin is allowed (CORS).
//!
//! A browser asks with a preflight whether a page may send its request, and shows the page an answer only if the answer names the
//! page's origin. Cookies are never allowed: a page of another origin identifies itself by a key alone.

use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use trunkline_wire::error::ApiError;

use super::origin::AllowedOrigin;
use super::request::{is_own_origin, is_pages, text};
use crate::config::ServerConfig;

/// Methods of the API.
const METHODS: &str = "GET, HEAD, POST, DELETE";

/// Time for which a browser may remember a preflight, in seconds: the most that Chromium accepts.
const MAX_AGE_SECONDS: &str = "7200";

const REQUEST_PRIVATE_NETWORK: &str = "access-control-request-private-network";
const ALLOW_PRIVATE_NETWORK: &str = "access-control-allow-private-network";

/// Everything in a preflight that its answer depends on.
const PREFLIGHT_VARY: &str = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, \
                              Access-Control-Request-Private-Network";

/// Headers of answers, besides those that begin with `x-`, that a page can read.
const EXPOSED: [&str; 5] = ["retry-after", "location", "idempotent-replayed", "preference-applied", "request-id"];

/// A page of another, allowed origin that sent a request.
#[derive(Debug)]
pub(crate) struct AllowedPage {
    origin: HeaderValue,
    pub(super) asks: PageRequest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageRequest {
    /// A question of the browser, which has no key.
    Preflight,
    /// A request of the page itself.
    Actual,
}

/// The allowed page of another origin that sent a request. `None` for our own page, for programs, and for pages that are not
/// allowed. The chat page and its endpoints, which know visitors by a cookie, are for our own page only.
pub(crate) fn allowed_page<B>(config: &ServerConfig, request: &Request<B>) -> Option<AllowedPage> {
    let (headers, path) = (request.headers(), request.uri().path());
    let origin = text(headers, ORIGIN.as_str())?;
    let own = text(headers, HOST.as_str()).is_some_and(|host| is_own_origin(origin.as_bytes(), host));
    if own || path == "/" || is_pages(path) || !config.origins.allow(origin) {
        return None;
    }
    let asks = if is_preflight(request) { PageRequest::Preflight } else { PageRequest::Actual };
    Some(AllowedPage { origin: headers.get(ORIGIN)?.clone(), asks })
}

/// Whether a browser asks if a page may send a request.
pub(super) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

impl AllowedPage {
    /// The answer to a preflight; `None` for any other request.
    pub(crate) fn preflight(&self, asked: &HeaderMap) -> Option<Response> {
        if self.asks != PageRequest::Preflight {
            return None;
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE_SECONDS));
        headers.insert(VARY, HeaderValue::from_static(PREFLIGHT_VARY));
        if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS).filter(|names| lists_names(names)) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        if asked.get(REQUEST_PRIVATE_NETWORK).is_some_and(|wish| wish == "true") {
            headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
        }
        Some(response)
    }

    /// Lets the page read an answer, whether it is an error or not.
    pub(crate) fn share(&self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin.clone());
        if self.asks == PageRequest::Actual {
            let is_exposed = |name: &&str| name.starts_with("x-") || EXPOSED.contains(name);
            let exposed: Vec<&str> = headers.keys().map(HeaderName::as_str).filter(is_exposed).collect();
            if let Ok(exposed) = HeaderValue::from_str(&exposed.join(", ")) {
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
            }
        }
    }
}

/// Marks an answer that would be different for another origin, so that no cache mixes them up.
pub(crate) fn vary_by_origin(config: &ServerConfig, headers: &mut HeaderMap) {
    if !config.origins.is_empty() && !headers.contains_key(VARY) {
        headers.insert(VARY, HeaderValue::from_static("Origin"));
    }
}

/// Whether a value is a list of header names.
fn lists_names(value: &HeaderValue) -> bool {
    let Ok(value) = value.to_str() else { return false };
    value.split(',').all(|name| HeaderName::from_bytes(name.trim().as_bytes()).is_ok())
}

/// Error for a page of another origin, with the setting that allows it. An invalid origin is not repeated.
pub(super) fn forbidden(origin: Option<&str>, path: &str) -> ApiError {
    let refused = |why: &str| {
        ApiError::forbidden("forbidden_origin", format!("requests from web pages of other origins are refused: {why}"))
    };
    if path == "/" || is_pages(path) {
        return refused("the chat page's endpoints are for the chat page only").hint("use /v1/chat/completions");
    }
    let hint = "server.allowOrigins in models.json and TRUNKLINE_ALLOW_ORIGIN are the same as --allow-origin";
    match origin {
        Some("null") => refused("a local file or a sandboxed frame has no origin that could be allowed")
            .hint("serve the page over HTTP, and start the gateway with --allow-origin and the page's origin"),
        Some(origin) if AllowedOrigin::parse(origin).is_ok() => {
            refused(&format!("to allow this one, start the gateway with --allow-origin {origin}")).hint(hint)
        }
        Some(_) | None => refused("to allow one, start the gateway with --allow-origin ORIGIN").hint(hint),
    }
}

#[cfg(test)]
mod tests {
    use super::super::origin::AllowedOrigins;
    use super::*;

    const PAGE: &str = "http://localhost:5173";

    fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost:8765");
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(()).unwrap()
    }

    fn config() -> ServerConfig {
        let origins = AllowedOrigins::new(vec![AllowedOrigin::parse(PAGE).unwrap()]);
        ServerConfig { origins, ..ServerConfig::default() }
    }

    #[test]
    fn page_is_recognised_by_its_origin() {
        for (path, headers, expected) in [
            ("/v1/models", &[("origin", PAGE)][..], true),
            ("/health", &[("origin", PAGE)], true),
            ("/v1/models", &[], false),
            ("/v1/models", &[("origin", "http://localhost:8765")], false),
            ("/v1/models", &[("origin", "http://localhost:5174")], false),
            ("/v1/models", &[("origin", "null")], false),
            ("/v1/models", &[("origin", PAGE), ("origin", PAGE)], false),
            ("/v1/models", &[("origin", PAGE), ("origin", "http://evil.example")], false),
            ("/", &[("origin", PAGE)], false),
            ("/chat", &[("origin", PAGE)], false),
            ("/clear/", &[("origin", PAGE)], false),
        ] {
            let page = allowed_page(&config(), &request("GET", path, headers));
            assert_eq!(page.is_some(), expected, "{path} {headers:?}");
        }
    }

    #[test]
    fn preflight_is_answered_with_what_the_browser_asked_for() {
        let answer = |more: &[(&str, &str)]| {
            let headers = [&[("origin", PAGE), ("access-control-request-method", "POST")], more].concat();
            let request = request("OPTIONS", "/v1/chat/completions", &headers);
            let page = allowed_page(&config(), &request).unwrap();
            let mut response = page.preflight(request.headers()).unwrap();
            page.share(response.headers_mut());
            assert_eq!(response.status(), 204);
            response.headers().clone()
        };
        let plain = answer(&[]);
        for (name, value) in [
            ("access-control-allow-origin", PAGE),
            ("access-control-allow-methods", "GET, HEAD, POST, DELETE"),
            ("access-control-max-age", "7200"),
            ("vary", PREFLIGHT_VARY),
        ] {
            assert_eq!(plain[name], value, "{name}");
        }
        assert_eq!(plain.len(), 4, "{plain:?}");
        let asked = "authorization, content-type, x-stainless-lang";
        let full =
            answer(&[("access-control-request-headers", asked), ("access-control-request-private-network", "true")]);
        assert_eq!(
            (&full["access-control-allow-headers"], &full[ALLOW_PRIVATE_NETWORK]),
            (&asked.parse().unwrap(), &"true".parse().unwrap())
        );
        for odd in ["", "a,,b", "a b", "<x>"] {
            assert!(
                !answer(&[("access-control-request-headers", odd)]).contains_key(ACCESS_CONTROL_ALLOW_HEADERS),
                "{odd}"
            );
        }
        let request = request("OPTIONS", "/v1/models", &[("origin", PAGE)]);
        assert!(allowed_page(&config(), &request).unwrap().preflight(request.headers()).is_none(), "no preflight");
    }

    #[test]
    fn answer_exposes_its_own_headers() {
        let page = allowed_page(&config(), &request("GET", "/v1/models", &[("origin", PAGE)])).unwrap();
        let mut headers = HeaderMap::new();
        for name in ["x-trunkline-run", "x-request-id", "retry-after", "set-cookie", "content-type"] {
            headers.insert(name, HeaderValue::from_static("v"));
        }
        page.share(&mut headers);
        vary_by_origin(&config(), &mut headers);
        let mut exposed: Vec<&str> = headers["access-control-expose-headers"].to_str().unwrap().split(", ").collect();
        exposed.sort_unstable();
        assert_eq!(exposed, ["retry-after", "x-request-id", "x-trunkline-run"]);
        assert_eq!(
            (&headers["access-control-allow-origin"], &headers["vary"]),
            (&PAGE.parse().unwrap(), &"Origin".parse().unwrap())
        );
        assert!(!headers.contains_key("access-control-allow-credentials"));
        let mut headers = HeaderMap::new();
        vary_by_origin(&ServerConfig::default(), &mut headers);
        assert!(headers.is_empty(), "without allowed origins nothing changes");
    }

    #[test]
    fn refusal_names_the_setting() {
        for (origin, path, expected) in [
            (Some("http://localhost:3000"), "/v1/models", "--allow-origin http://localhost:3000"),
            (Some("<script>"), "/v1/models", "--allow-origin ORIGIN"),
            (Some("https://*"), "/v1/models", "--allow-origin ORIGIN"),
            (None, "/v1/models", "--allow-origin ORIGIN"),
            (Some("null"), "/v1/models", "no origin that could be allowed"),
            (Some("http://localhost:3000"), "/chat", "for the chat page only"),
        ] {
            let error = forbidden(origin, path);
            assert!(error.status == 403 && error.message.ends_with(expected), "{origin:?} {path}: {}", error.message);
        }
    }
}
