//! Errors in Google's shape. Our own facts are among the `details`, whose types are Google's.

use serde::Serialize;
use serde_json::{Value, json};
use trunkline_wire::chat::Extension;
use trunkline_wire::error::ApiError;

use crate::dialect::json::json as append_json;

/// `error` comes first: Google's client for Python recognises an error by that.
#[derive(Serialize)]
struct Envelope<'a> {
    error: ErrorObject<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trunkline: Option<&'a Extension>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    code: u16,
    message: &'a str,
    status: &'static str,
    details: Vec<Value>,
}

/// The body of an error response.
pub(crate) fn body(error: &ApiError) -> String {
    let mut out = Vec::new();
    write(error, &mut out);
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Appends the body of an error.
pub(super) fn write(error: &ApiError, out: &mut Vec<u8>) {
    let code = error.native_status();
    let message = match &error.param {
        Some(param) if !error.message.contains(&**param) => &*format!("{param}: {}", error.message),
        Some(_) | None => &*error.message,
    };
    let object = ErrorObject { code, message, status: status(code), details: details(error) };
    append_json(out, &Envelope { error: object, trunkline: error.trace.as_deref() });
}

fn details(error: &ApiError) -> Vec<Value> {
    let mut metadata = serde_json::Map::new();
    for (name, value) in [("detail", &error.detail), ("hint", &error.hint)] {
        metadata.extend(value.as_deref().map(|value| (name.to_owned(), value.into())));
    }
    let mut details = vec![json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.code.to_uppercase(), "domain": "trunkline",
        "metadata": metadata,
    })];
    if let Some(param) = &error.param {
        let violation = json!({"field": param, "description": error.message});
        let kind = "type.googleapis.com/google.rpc.BadRequest";
        details.push(json!({"@type": kind, "fieldViolations": [violation]}));
    }
    if let Some(wait) = error.retry_after {
        let delay = format!("{}s", wait.as_millis().div_ceil(1000));
        details.push(json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}));
    }
    details
}

/// Google's name of a status, by which its clients decide whether to repeat a request.
const fn status(code: u16) -> &'static str {
    match code {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        408 | 504 => "DEADLINE_EXCEEDED",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        503 | 507 => "UNAVAILABLE",
        500.. => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trunkline_core::failure::{Category, Failure};
    use trunkline_core::secret::Secrets;

    use super::*;

    #[test]
    fn status_has_the_name_of_google() {
        let failed = |category| ApiError::failed(&Failure::new(category, "no"), &Secrets::default());
        for (error, code, name) in [
            (ApiError::invalid("invalid_value", "no"), 400, "INVALID_ARGUMENT"),
            (ApiError::too_large(1), 413, "INVALID_ARGUMENT"),
            (ApiError::wrong_method("PUT"), 405, "INVALID_ARGUMENT"),
            (ApiError::unprocessable("idempotency_key_reused", "no"), 422, "INVALID_ARGUMENT"),
            (ApiError::unauthorized("no"), 401, "UNAUTHENTICATED"),
            (ApiError::forbidden("forbidden_host", "no"), 403, "PERMISSION_DENIED"),
            (ApiError::unknown_model(&[]), 404, "NOT_FOUND"),
            (ApiError::unknown_path("GET", "/v1beta/x"), 404, "NOT_FOUND"),
            (ApiError::body_timeout(), 408, "DEADLINE_EXCEEDED"),
            (ApiError::limited("no", Duration::ZERO), 429, "RESOURCE_EXHAUSTED"),
            (ApiError::busy("no", Duration::ZERO), 503, "UNAVAILABLE"),
            (failed(Category::Quota), 429, "RESOURCE_EXHAUSTED"),
            (failed(Category::Timeout), 504, "DEADLINE_EXCEEDED"),
            (failed(Category::Authentication), 500, "INTERNAL"),
        ] {
            let written: Value = serde_json::from_str(&body(&error)).unwrap();
            assert_eq!((&written["error"]["code"], &written["error"]["status"]), (&json!(code), &json!(name)));
        }
    }

    #[test]
    fn details_name_the_reason_the_member_and_the_wait() {
        let error = ApiError::invalid("invalid_value", "unknown role").about("contents[0].role").hint("try another");
        let written: Value = serde_json::from_str(&body(&error)).unwrap();
        assert_eq!(written["error"]["message"], "contents[0].role: unknown role");
        let details = &written["error"]["details"];
        assert_eq!(
            (&details[0]["reason"], &details[0]["metadata"]["hint"]),
            (&json!("INVALID_VALUE"), &json!("try another"))
        );
        assert_eq!(details[1]["fieldViolations"][0]["field"], "contents[0].role");
        assert!(body(&error).starts_with("{\"error\":"), "Google's client for Python expects it first");
        let busy: Value = serde_json::from_str(&body(&ApiError::busy("no", Duration::from_millis(1500)))).unwrap();
        assert_eq!(busy["error"]["details"][1]["retryDelay"], "2s");
    }
}
