//! JSON responses, and errors as JSON.

use std::time::Duration;

use axum::body::Body;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode};
use serde::Serialize;
use trunkline_engine::Allowance;
use trunkline_wire::error::ApiError;

/// Room for the headers of a usual response: its map is then allocated once.
const USUAL_HEADERS: usize = 12;

/// Type of every response.
pub(crate) type HttpResponse = http::Response<Body>;

pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> HttpResponse {
    let body = serde_json::to_vec(value).expect("our own types have string keys and finite numbers");
    json_bytes(status, body)
}

/// An error in OpenAI's shape. The error itself is attached, so that it can get another shape: see [`crate::dialect::AnswerShape`].
pub(crate) fn error(error: &ApiError) -> HttpResponse {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_bytes(status, error.body().into_bytes());
    response.extensions_mut().insert(error.clone());
    let headers = response.headers_mut();
    for (name, value) in error.headers() {
        let value = HeaderValue::from_str(&value).expect("numbers and words are header values");
        headers.insert(HeaderName::from_static(name), value);
    }
    match error.status {
        401 => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        // The rest of the body will not be read.
        408 | 413 => drop(headers.insert(CONNECTION, HeaderValue::from_static("close"))),
        _ => {}
    }
    response
}

/// Adds OpenAI's rate limit headers.
pub(crate) fn name_allowance(headers: &mut HeaderMap, allowance: Allowance) {
    let Allowance { limit, remaining, reset } = allowance;
    headers.insert("x-ratelimit-limit-requests", limit.into());
    headers.insert("x-ratelimit-remaining-requests", remaining.into());
    let reset = HeaderValue::from_str(&span(reset)).expect("digits and letters are a header value");
    headers.insert("x-ratelimit-reset-requests", reset);
}

/// Formats a duration like OpenAI: `20ms`, `1.5s`, `6m0s`.
fn span(time: Duration) -> String {
    match (time.as_secs(), time.subsec_millis()) {
        (0, millis) => format!("{millis}ms"),
        (seconds @ 0..60, millis) => format!("{}s", seconds as f64 + f64::from(millis) / 1000.0),
        (seconds, _) => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}

/// A response with a body that is JSON already.
pub(crate) fn json_bytes(status: StatusCode, body: Vec<u8>) -> HttpResponse {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().reserve(USUAL_HEADERS);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
