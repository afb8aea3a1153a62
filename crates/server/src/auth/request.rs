//! Facts about a request that several checks need.

use http::HeaderMap;

/// Value of a header, unless the header is repeated or not text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        (Some(_), Some(_)) | (None, _) => None,
    }
}

/// Whether a path is an endpoint of the chat page. These identify visitors by a cookie, which browsers send by themselves.
pub(super) fn is_pages(path: &str) -> bool {
    matches!(path.strip_suffix('/').unwrap_or(path), "/chat" | "/clear" | "/stop")
}

/// Whether an origin is that of our own page, under the name by which the request calls us.
pub(super) fn is_own_origin(origin: &[u8], host: &str) -> bool {
    let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_bytes()))
}
