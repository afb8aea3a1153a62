//! The chat page: one HTML file without external resources, and its endpoints.
//!
//! The content security policy allows only the page's own script and style, by their digests, and connections to this server.

mod chat;
mod chats;
mod cookie;
mod disk;
mod talk;
mod transcript;

use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::Request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH,
};
use http::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use sha2::{Digest, Sha256};

pub(crate) use chat::{clear, say, show, stop};
pub(crate) use chats::Chats;
use cookie::Visitor;
pub use disk::forget as forget_chats;

use crate::answer::reply::HttpResponse;

const HTML: &str = include_str!("index.html");

/// Headers of the page, computed once.
static HEADERS: LazyLock<[(HeaderName, HeaderValue); 6]> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; img-src data:; connect-src 'self'; frame-ancestors 'none'; \
         base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'; trusted-types 'none'",
        sources(HTML, "script"),
        sources(HTML, "style"),
    );
    let tag = format!("\"{}\"", &blake3::hash(HTML.as_bytes()).to_hex()[..32]);
    let value = |text: &str| HeaderValue::from_str(text).expect("digests and words are header values");
    [
        (CONTENT_TYPE, value("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, value(&policy)),
        (X_CONTENT_TYPE_OPTIONS, value("nosniff")),
        (REFERRER_POLICY, value("no-referrer")),
        (CACHE_CONTROL, value("no-cache")),
        (ETAG, value(&tag)),
    ]
});

/// `GET /`.
pub(crate) async fn page(request: Request) -> HttpResponse {
    let etag = &HEADERS[5].1;
    let known = request.headers().get_all(IF_NONE_MATCH).iter().any(|given| names(given, etag));
    let mut response = Response::new(if known { Body::empty() } else { Body::from(HTML) });
    *response.status_mut() = if known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    response.headers_mut().extend(HEADERS.iter().cloned());
    // Set with the page itself, so that its first requests belong to one visitor.
    Visitor::of_browser(request.headers()).introduce(response.headers_mut());
    response
}

fn names(given: &HeaderValue, etag: &HeaderValue) -> bool {
    let (given, etag) = (given.to_str().unwrap_or_default(), etag.to_str().unwrap_or_default());
    given.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag)
}

/// Digests of all inline elements of that kind, in the notation of the policy.
fn sources(html: &str, element: &str) -> String {
    let (start, end) = (format!("<{element}>"), format!("</{element}>"));
    let texts = html.split(&start).skip(1).filter_map(|rest| rest.split_once(&end)).map(|(text, _)| text);
    let digests = texts.map(|text| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes()))));
    digests.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_that_browsers_compute() {
        // The example in the specification.
        let html = "<script>alert('Hello, world.');</script><style></style>";
        assert_eq!(sources(html, "script"), "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='");
        assert_eq!(sources(html, "style"), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
    }

    #[test]
    fn page_is_small_and_has_no_external_resources() {
        assert!(HTML.len() < 60_000, "{} bytes", HTML.len());
        for trap in ["src=", "@import", "url(", "innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("] {
            assert!(!HTML.contains(trap), "{trap}");
        }
        let attributes = HTML.split_whitespace().filter(|word| word.starts_with("on") && word.contains("=\""));
        assert_eq!(attributes.collect::<Vec<_>>(), Vec::<&str>::new(), "no handlers in the markup");
    }

    #[test]
    fn cached_page_is_recognised_by_its_etag() {
        let etag = HeaderValue::from_static("\"a\"");
        for (given, known) in [("\"a\"", true), ("\"b\", W/\"a\"", true), ("*", true), ("\"b\"", false), ("a", false)] {
            assert_eq!(names(&HeaderValue::from_static(given), &etag), known, "{given}");
        }
    }
}
