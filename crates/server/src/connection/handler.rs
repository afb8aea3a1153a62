//! One request: framing, size and key are checked, then its route answers. A panic fails that request alone.

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use futures_util::FutureExt;
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;
use tower::ServiceExt;
use trunkline_wire::error::ApiError;
use uuid::Uuid;

use super::framing::Verdict;
use crate::answer::reply;
use crate::app::App;
use crate::auth::{self, cors};
use crate::config::HttpLimits;
use crate::dialect;
use crate::door::Door;

/// Answers one request.
pub(crate) async fn handle<D: Door>(
    app: &App<D>,
    routes: Router,
    peer: auth::Peer,
    verdict: Verdict,
    mut request: Request,
) -> Response {
    let began = Instant::now();
    let id = request_id(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let shape = dialect::AnswerShape::of(&request);
    let page = cors::allowed_page(&app.config, &request);
    let preflight = page.as_ref().and_then(|page| page.preflight(request.headers()));
    let admitted = check_framing(verdict)
        .and_then(|()| check_size(request.headers(), &app.config.limits))
        .and_then(|()| auth::admit(&app.config, peer, page.as_ref(), &request));
    let admitted = app.limit_wrong_keys(peer, admitted);
    let mut response = match admitted {
        Err(error) => reply::error(&error),
        Ok(_) if let Some(preflight) = preflight => preflight,
        Ok(_) if app.stopping.is_cancelled() && !auth::is_health(&path) => reply::error(&ApiError::stopping()),
        Ok(owner) => {
            // Handlers read the client from the extensions.
            request.extensions_mut().insert(owner);
            match AssertUnwindSafe(routes.oneshot(request)).catch_unwind().await {
                Ok(Ok(response)) => response,
                Ok(Err(never)) => match never {},
                Err(_panic) => {
                    tracing::error!(request = ?id, "a handler panicked");
                    reply::error(&ApiError::internal())
                }
            }
        }
    };
    shape.apply(&id, &mut response);
    let (status, elapsed) = (response.status().as_u16(), began.elapsed());
    tracing::debug!(request = ?id, %method, path, status, ?elapsed, "answered");
    response.headers_mut().insert("x-request-id", id);
    cors::vary_by_origin(&app.config, response.headers_mut());
    if let Some(page) = page {
        page.share(response.headers_mut());
    }
    if verdict != Verdict::Length {
        // The rest of the connection is not parsed after such a request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn check_framing(verdict: Verdict) -> Result<(), ApiError> {
    match verdict {
        Verdict::Length | Verdict::Chunked => Ok(()),
        Verdict::Ambiguous(why) => Err(ApiError::ambiguous_framing(why)),
    }
}

/// Checks the size of the head. hyper checks its limit only between reads, so a head of up to twice the size passes.
fn check_size(headers: &HeaderMap, limits: &HttpLimits) -> Result<(), ApiError> {
    let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if size > limits.header_bytes { Err(ApiError::headers_too_large(limits.header_bytes)) } else { Ok(()) }
}

/// The client's own request id if it is a plain word, otherwise a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let plain = |c: &u8| c.is_ascii_alphanumeric() || b"-_.:".contains(c);
    match headers.get("x-request-id") {
        Some(id) if (1..=128).contains(&id.len()) && id.as_bytes().iter().all(plain) => id.clone(),
        Some(_) | None => {
            let mut id = *b"req_00000000000000000000000000000000";
            Uuid::new_v4().simple().encode_lower(&mut id[4..]);
            HeaderValue::from_bytes(&id).expect("hexadecimal is a header value")
        }
    }
}
