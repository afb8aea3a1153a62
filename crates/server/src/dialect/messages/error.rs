//! Errors in Anthropic's shape. Our own members come after Anthropic's, as in every dialect.

use serde::Serialize;
use trunkline_wire::chat::Extension;
use trunkline_wire::error::ApiError;

use crate::dialect::json::json;

#[derive(Serialize)]
struct Envelope<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    error: ErrorObject<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trunkline: Option<&'a Extension>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    message: String,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

/// Appends the body of an error.
pub(super) fn write(error: &ApiError, request_id: Option<&str>, out: &mut Vec<u8>) {
    let object = ErrorObject {
        kind: kind(error),
        message: message(error),
        code: error.code,
        param: error.param.as_deref(),
        detail: error.detail.as_deref(),
        hint: error.hint.as_deref(),
    };
    json(out, &Envelope { kind: "error", error: object, request_id, trunkline: error.trace.as_deref() });
}

/// The body of an error response.
pub(crate) fn body(error: &ApiError, request_id: Option<&str>) -> Vec<u8> {
    let mut out = Vec::new();
    write(error, request_id, &mut out);
    out
}

/// The message names the invalid member: clients show nothing else.
fn message(error: &ApiError) -> String {
    match &error.param {
        Some(param) if !error.message.contains(&**param) => format!("{param}: {}", error.message),
        Some(_) | None => error.message.to_string(),
    }
}

/// Anthropic's type of an error, by which its clients choose a class and decide whether to repeat the request.
fn kind(error: &ApiError) -> &'static str {
    match (error.status, error.code) {
        (_, "model_not_found") | (404, _) => "not_found_error",
        (401, _) => "authentication_error",
        (403, _) => "permission_error",
        (413, _) => "request_too_large",
        (429, _) => "rate_limit_error",
        (504, _) => "timeout_error",
        (503 | 507, _) => "overloaded_error",
        (500.., _) => "api_error",
        (_, _) => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use trunkline_core::failure::{Category, Failure};
    use trunkline_core::secret::Secrets;

    use super::*;

    #[test]
    fn type_follows_from_the_status() {
        let failed = |category| ApiError::failed(&Failure::new(category, "no"), &Secrets::default());
        for (error, expected) in [
            (ApiError::invalid("invalid_value", "no"), "invalid_request_error"),
            (ApiError::unsupported_media("no"), "invalid_request_error"),
            (ApiError::unprocessable("idempotency_key_reused", "no"), "invalid_request_error"),
            (ApiError::wrong_method("PUT"), "invalid_request_error"),
            (ApiError::unauthorized("no"), "authentication_error"),
            (ApiError::forbidden("forbidden_origin", "no"), "permission_error"),
            (ApiError::unknown_model(&[]), "not_found_error"),
            (ApiError::unknown_path("GET", "/v1/messages/x"), "not_found_error"),
            (ApiError::too_large(1), "request_too_large"),
            (ApiError::limited("no", Duration::ZERO), "rate_limit_error"),
            (ApiError::busy("no", Duration::ZERO), "overloaded_error"),
            (ApiError::stopping(), "overloaded_error"),
            (ApiError::internal(), "api_error"),
            (failed(Category::RateLimit), "rate_limit_error"),
            (failed(Category::Quota), "rate_limit_error"),
            (failed(Category::Timeout), "timeout_error"),
            // The gateway's key is right: the CLI is not logged in.
            (failed(Category::Authentication), "api_error"),
            (failed(Category::Unknown), "api_error"),
        ] {
            assert_eq!(kind(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn body_names_the_member_and_the_request() {
        let error = ApiError::invalid("invalid_value", "unknown role").about("messages[0].role").hint("try another");
        let written: Value = serde_json::from_slice(&body(&error, Some("req_1"))).unwrap();
        let expected = json!({"type": "error", "request_id": "req_1", "error": {
            "type": "invalid_request_error", "message": "messages[0].role: unknown role", "code": "invalid_value",
            "param": "messages[0].role", "hint": "try another",
        }});
        assert_eq!(written, expected);
        let named = ApiError::invalid("missing_required_parameter", "`model` is missing").about("model");
        let written: Value = serde_json::from_slice(&body(&named, None)).unwrap();
        assert_eq!((&written["error"]["message"], written.get("request_id")), (&json!("`model` is missing"), None));
    }
}
