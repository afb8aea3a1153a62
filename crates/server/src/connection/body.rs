//! Reading of a request body: uncompressed JSON, bounded in size and time.

use axum::body::Body;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::BodyExt;
use tokio::time::timeout;
use trunkline_wire::error::ApiError;

use crate::config::HttpLimits;

/// Reads the whole body. Refuses it by its headers alone if possible.
pub(crate) async fn read_json(headers: &HeaderMap, mut body: Body, limits: &HttpLimits) -> Result<Vec<u8>, ApiError> {
    check_headers(headers)?;
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limits.body) {
        return Err(ApiError::too_large(limits.body));
    }
    let mut bytes = Vec::with_capacity(announced.unwrap_or(0).min(limits.header_bytes));
    loop {
        let frame = match timeout(limits.body_idle, body.frame()).await {
            Err(_elapsed) => return Err(ApiError::body_timeout()),
            Ok(None) => return Ok(bytes),
            Ok(Some(Err(error))) => {
                return Err(ApiError::invalid("invalid_body", format!("the body cannot be read: {error}")));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        if let Ok(data) = frame.into_data() {
            if data.len() > limits.body - bytes.len() {
                return Err(ApiError::too_large(limits.body));
            }
            bytes.extend_from_slice(&data);
        }
    }
}

/// Requires `application/json`, which a browser cannot send across sites without a preflight request: part of the protection against
/// CSRF.
fn check_headers(headers: &HeaderMap) -> Result<(), ApiError> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = content_type.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::unsupported_media("send Content-Type: application/json"));
    }
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(ApiError::unsupported_media("compressed bodies are not accepted: send it without Content-Encoding"))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn case_08_body_is_refused_unless_it_is_uncompressed_json() {
        for (content_type, encoding, accepted) in [
            (Some("application/json"), None, true),
            (Some("Application/JSON; charset=utf-8"), Some("identity"), true),
            (Some("text/plain"), None, false),
            (Some("application/json-patch"), None, false),
            (Some("application/x-www-form-urlencoded"), None, false),
            (None, None, false),
            (Some("application/json"), Some("gzip"), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(value) = content_type {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
            }
            if let Some(value) = encoding {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            let refused = check_headers(&headers).err().map(|error| error.status);
            assert_eq!(refused, (!accepted).then_some(415), "{content_type:?} {encoding:?}");
        }
    }
}
