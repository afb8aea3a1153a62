//! `GET /openapi.json`: a description of every route, for tools that generate clients or documentation.

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use crate::answer::reply::HttpResponse;

const DOCUMENT: &str = include_str!("../../../../schemas/openapi.json");

pub(crate) async fn document() -> HttpResponse {
    let mut response = Response::new(Body::from(DOCUMENT));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
