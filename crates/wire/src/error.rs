//! Errors as clients of OpenAI's API expect them: a status, headers, and one shape of body.
//!
//! Every error response of the gateway is built here, so that all of them have the same shape. Nothing is classified
//! here: a [`Failure`] already has its category.

use std::time::Duration;

use serde::Serialize;
use trunkline_core::ansi;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::secret::Secrets;

use crate::chat::Extension;
use crate::response::Trace;

/// Maximum length of `detail`, in characters: enough for a stack trace, too little for a log file.
const MAX_DETAIL_CHARS: usize = 4000;

/// Maximum length of the `message` of a failed CLI, in characters. Most clients print it on one line, and nothing else.
const MAX_MESSAGE_CHARS: usize = 300;

/// Maximum number of models an error lists.
const MAX_LISTED_MODELS: usize = 20;

/// Longest wait sent to a client: official SDKs ignore a longer one and retry at once.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

const CLI_ERROR: &str = "cli_error";

const INVALID_REQUEST: &str = "invalid_request_error";

/// An error response.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    pub status: u16,
    /// OpenAI's `type`.
    pub kind: &'static str,
    pub message: Box<str>,
    pub code: &'static str,
    /// The invalid member of the request.
    pub param: Option<Box<str>>,
    pub detail: Option<Box<str>>,
    pub hint: Option<Box<str>>,
    pub retry_after: Option<Duration>,
    pub repeat: Repeat,
    /// Progress of the run and the workspace it left behind.
    pub trace: Option<Box<Extension>>,
}

/// Automatic retry of the client's SDK after this error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// The SDK decides by the status.
    ByStatus,
    /// No retry: it would run an agent again and fail the same way.
    Never,
}

/// Status of a request that is refused because the state folder is not writable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageStatus {
    /// 503, for a client that waits for its answer.
    Unavailable,
    /// 507, for a client that asked for the answer to be stored.
    Insufficient,
}

impl ApiError {
    /// A failed run. `message` has the first line of the reason, because clients print nothing else; `detail` is the
    /// CLI's own message. Secrets are masked in both, and both are truncated.
    #[must_use]
    pub fn failed(failure: &Failure, secrets: &Secrets) -> Self {
        let category = failure.category;
        let wait = match category {
            Category::RateLimit => failure.retry_after.or(Some(Duration::from_secs(1))),
            Category::Quota
            | Category::Authentication
            | Category::Validation
            | Category::Network
            | Category::Server
            | Category::Timeout
            | Category::NotFound
            | Category::Configuration
            | Category::Unknown
            | Category::SchemaMismatch
            | Category::Cancelled => failure.retry_after,
        };
        // Strip escapes first: one in the middle of a secret would hide the secret from the mask.
        let reason = secrets.mask(&ansi::strip(&failure.message));
        Self {
            hint: failure.hint.as_deref().map(|hint| bounded(secrets.mask(hint))),
            retry_after: wait,
            repeat: if category.policy().retry { Repeat::ByStatus } else { Repeat::Never },
            ..Self::new(status(category), CLI_ERROR, category.name(), headline(&reason))
        }
        .detail(bounded(reason))
    }

    /// A failure before any run started. A validation failure is the client's fault and becomes a 400 with the
    /// failure's own message.
    #[must_use]
    pub fn not_started(failure: &Failure, secrets: &Secrets) -> Self {
        match failure.category {
            Category::Validation => Self {
                hint: failure.hint.as_deref().map(|hint| bounded(secrets.mask(hint))),
                ..Self::new(400, INVALID_REQUEST, "invalid_value", bounded(secrets.mask(&failure.message)))
            },
            Category::Quota
            | Category::RateLimit
            | Category::Authentication
            | Category::Network
            | Category::Server
            | Category::Timeout
            | Category::NotFound
            | Category::Configuration
            | Category::Unknown
            | Category::SchemaMismatch
            | Category::Cancelled => Self::failed(failure, secrets),
        }
    }

    #[must_use]
    pub fn unknown_model(near: &[String]) -> Self {
        let detail = (!near.is_empty()).then(|| format!("did you mean: {}?", near.join(", ")).into());
        Self { detail, ..Self::new(400, INVALID_REQUEST, "model_not_found", "Unknown model") }.about("model")
    }

    /// Adds the names of the available models as the hint.
    #[must_use]
    pub fn listing_models(self, names: &[String]) -> Self {
        if names.is_empty() {
            return self.hint("there are no models: write a models.json, or install an agent CLI");
        }
        let listed = names.iter().take(MAX_LISTED_MODELS).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(MAX_LISTED_MODELS);
        let more = if more > 0 { format!(" and {more} more (GET /v1/models)") } else { String::new() };
        self.hint(bounded(format!("models here: {listed}{more}")))
    }

    /// Explains why a name is not a model although the gateway knows a CLI of that name.
    #[must_use]
    pub fn known_cli(mut self, why: &str, remedy: &str) -> Self {
        self.message = format!("Unknown model: {why}").into();
        self.detail(bounded(remedy.to_owned()))
    }

    /// An unknown model in the path of a URL: 404 instead of 400.
    #[must_use]
    pub fn no_such_model() -> Self {
        Self { status: 404, ..Self::unknown_model(&[]) }
    }

    /// All slots are taken and the queue is full.
    #[must_use]
    pub fn busy(message: &str, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(503, "overloaded", "overloaded", message) }
    }

    /// The client has exceeded its own rate limit; other clients are still served.
    #[must_use]
    pub fn limited(message: &str, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(429, "requests", "rate_limit_exceeded", message) }
    }

    /// Every provider that could answer has an open circuit breaker. `last` is the failure that opened it.
    #[must_use]
    pub fn unavailable(message: &str, retry_after: Duration, last: Option<&Failure>, secrets: &Secrets) -> Self {
        let mask = |text: &str| bounded(secrets.mask(&ansi::strip(text)));
        Self {
            detail: last.map(|last| mask(&last.message)),
            hint: last.and_then(|last| last.hint.as_deref()).map(mask),
            retry_after: Some(retry_after),
            ..Self::new(503, "overloaded", "circuit_open", mask(message))
        }
    }

    /// The state folder is not writable: a run could not be recorded, so none is started.
    #[must_use]
    pub fn storage(status: StorageStatus, reason: &str, retry_after: Duration) -> Self {
        let code = match status {
            StorageStatus::Unavailable => 503,
            StorageStatus::Insufficient => 507,
        };
        let message = format!("the gateway cannot write to its state folder: {reason}");
        Self { retry_after: Some(retry_after), ..Self::new(code, "overloaded", "storage_unavailable", message) }
    }

    /// A request whose end two HTTP parsers could place differently (request smuggling).
    #[must_use]
    pub fn ambiguous_framing(message: &'static str) -> Self {
        Self::new(400, INVALID_REQUEST, "invalid_framing", message)
    }

    /// The server is shutting down; another instance, or this one later, may answer.
    #[must_use]
    pub fn stopping() -> Self {
        let message = "the server is shutting down";
        Self { retry_after: Some(Duration::from_secs(1)), ..Self::new(503, "overloaded", "shutting_down", message) }
    }

    /// A request that cannot be parsed or has an invalid value.
    #[must_use]
    pub fn invalid(code: &'static str, message: impl Into<Box<str>>) -> Self {
        Self::new(400, INVALID_REQUEST, code, message)
    }

    /// A valid request for a feature that is not supported.
    #[must_use]
    pub fn unsupported(param: impl Into<Box<str>>, message: impl Into<Box<str>>) -> Self {
        Self::new(400, INVALID_REQUEST, "unsupported_parameter", message).about(param)
    }

    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        Self::new(413, INVALID_REQUEST, "request_too_large", format!("the body is larger than {limit} bytes"))
    }

    #[must_use]
    pub fn headers_too_large(limit: usize) -> Self {
        Self::new(431, INVALID_REQUEST, "headers_too_large", format!("the headers are larger than {limit} bytes"))
    }

    #[must_use]
    pub fn unsupported_media(message: impl Into<Box<str>>) -> Self {
        Self::new(415, INVALID_REQUEST, "unsupported_media_type", message)
    }

    #[must_use]
    pub fn unauthorized(message: impl Into<Box<str>>) -> Self {
        Self::new(401, INVALID_REQUEST, "invalid_api_key", message)
    }

    #[must_use]
    pub fn forbidden(code: &'static str, message: impl Into<Box<str>>) -> Self {
        Self::new(403, INVALID_REQUEST, code, message)
    }

    /// A request that conflicts with the current state of its target.
    #[must_use]
    pub fn conflict(code: &'static str, message: impl Into<Box<str>>) -> Self {
        Self { repeat: Repeat::Never, ..Self::new(409, INVALID_REQUEST, code, message) }
    }

    /// A resource that does not exist, or that the client may not see.
    #[must_use]
    pub fn not_found(code: &'static str, message: impl Into<Box<str>>) -> Self {
        Self::new(404, INVALID_REQUEST, code, message)
    }

    /// A well-formed request that contradicts an earlier one, such as a reused idempotency key with another body.
    #[must_use]
    pub fn unprocessable(code: &'static str, message: impl Into<Box<str>>) -> Self {
        Self { repeat: Repeat::Never, ..Self::new(422, INVALID_REQUEST, code, message) }
    }

    #[must_use]
    pub fn unknown_path(method: &str, path: &str) -> Self {
        let path = bounded(path.chars().take(200).collect());
        Self::new(404, INVALID_REQUEST, "unknown_url", format!("unknown request URL: {method} {path}"))
    }

    #[must_use]
    pub fn wrong_method(method: &str) -> Self {
        Self::new(405, INVALID_REQUEST, "method_not_allowed", format!("{method} is not allowed here"))
    }

    /// The client stopped sending in the middle of its request.
    #[must_use]
    pub fn body_timeout() -> Self {
        Self::new(408, INVALID_REQUEST, "request_timeout", "the body did not arrive in time")
    }

    /// A bug in the gateway. The cause is in the log, not in the response.
    #[must_use]
    pub fn internal() -> Self {
        let error = Self::new(500, "server_error", "internal_error", "the gateway failed to answer this request");
        Self { repeat: Repeat::Never, ..error }
    }

    /// Status of this error in APIs other than OpenAI's.
    #[must_use]
    pub fn native_status(&self) -> u16 {
        // OpenAI's clients know a 400 for an unknown model, all others a 404.
        if self.code == "model_not_found" { 404 } else { self.status }
    }

    #[must_use]
    pub fn about(mut self, param: impl Into<Box<str>>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Whether a CLI or another provider failed, as opposed to the request or the gateway.
    #[must_use]
    pub fn is_of_a_cli(&self) -> bool {
        self.kind == CLI_ERROR
    }

    #[must_use]
    fn detail(mut self, detail: Box<str>) -> Self {
        self.detail = Some(detail);
        self
    }

    /// Adds advice on how to fix the error.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Box<str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the trace of the failed run: it may have left work on a branch, and the client must know about it.
    #[must_use]
    pub fn of_run(mut self, trace: &Trace) -> Self {
        if !trace.run.is_empty() {
            self.trace = Some(Box::new(trace.extension(None)));
        }
        // The gateway has retried already, and a retrying client would multiply the attempts. After a 429 it may retry
        // once the wait is over, unless a tool has run: then the agent would start on its own half-done work.
        if trace.acted || (trace.attempts.len() > 1 && self.status != 429) {
            self.repeat = Repeat::Never;
        }
        self
    }

    /// Response headers: the wait, and whether to retry.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if let Some(wait) = self.retry_after.map(|wait| wait.min(MAX_RETRY_AFTER)) {
            let millis = wait.as_millis();
            headers.push(("retry-after", millis.div_ceil(1000).to_string()));
            headers.push(("retry-after-ms", millis.to_string()));
        }
        if self.repeat == Repeat::Never {
            headers.push(("x-should-retry", "false".to_owned()));
        }
        headers
    }

    /// Returns `{"error":{…}}`, for a response body or the last frame of a failed stream.
    #[must_use]
    pub fn body(&self) -> String {
        let error = ErrorBody {
            message: &self.message,
            kind: self.kind,
            code: self.code,
            param: self.param.as_deref(),
            detail: self.detail.as_deref(),
            hint: self.hint.as_deref(),
            retry_after_ms: self.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        };
        serde_json::to_string(&Envelope { error, trunkline: self.trace.as_deref() })
            .expect("strings and numbers always serialise")
    }

    fn new(status: u16, kind: &'static str, code: &'static str, message: impl Into<Box<str>>) -> Self {
        Self {
            status,
            kind,
            message: message.into(),
            code,
            param: None,
            detail: None,
            hint: None,
            retry_after: None,
            repeat: Repeat::ByStatus,
            trace: None,
        }
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: ErrorBody<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trunkline: Option<&'a Extension>,
}

/// OpenAI's four members are always present; ours only when they have a value.
#[derive(Serialize)]
struct ErrorBody<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    code: &'a str,
    param: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

const fn status(category: Category) -> u16 {
    match category {
        Category::RateLimit | Category::Quota => 429,
        Category::Timeout => 504,
        Category::SchemaMismatch => 422,
        Category::Authentication
        | Category::Validation
        | Category::Network
        | Category::Server
        | Category::NotFound
        | Category::Configuration
        | Category::Unknown
        | Category::Cancelled => 500,
    }
}

/// `CLI failed: ` and the first line of the reason.
fn headline(reason: &str) -> Box<str> {
    let line = reason.split(['\n', '\r']).map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given");
    let printable: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    cut(format!("CLI failed: {printable}"), MAX_MESSAGE_CHARS)
}

fn bounded(text: String) -> Box<str> {
    cut(text, MAX_DETAIL_CHARS)
}

/// Truncates to at most `max` characters; the last one is an ellipsis if anything was cut.
fn cut(mut text: String, max: usize) -> Box<str> {
    if let Some((cut, _)) = text.char_indices().nth(max) {
        let last = text[..cut].chars().next_back().map_or(0, char::len_utf8);
        text.truncate(cut - last);
        text.push('…');
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use trunkline_core::event::Attempted;

    fn body(error: &ApiError) -> Value {
        serde_json::from_str(&error.body()).unwrap()
    }

    #[test]
    fn failure_category_determines_status_and_headers() {
        for (category, wait_ms, status, headers) in [
            (Category::RateLimit, None, 429, vec![("retry-after", "1"), ("retry-after-ms", "1000")]),
            (Category::RateLimit, Some(1500), 429, vec![("retry-after", "2"), ("retry-after-ms", "1500")]),
            (Category::RateLimit, Some(3_600_000), 429, vec![("retry-after", "120"), ("retry-after-ms", "120000")]),
            (Category::Quota, None, 429, vec![("x-should-retry", "false")]),
            (
                Category::Quota,
                Some(30_000),
                429,
                vec![("retry-after", "30"), ("retry-after-ms", "30000"), ("x-should-retry", "false")],
            ),
            (Category::Timeout, None, 504, vec![]),
            (Category::Network, None, 500, vec![]),
            (Category::Server, None, 500, vec![]),
            (Category::Authentication, None, 500, vec![("x-should-retry", "false")]),
            (Category::Validation, None, 500, vec![("x-should-retry", "false")]),
            (Category::NotFound, None, 500, vec![("x-should-retry", "false")]),
            (Category::Configuration, None, 500, vec![("x-should-retry", "false")]),
            (Category::Unknown, None, 500, vec![("x-should-retry", "false")]),
            (Category::Cancelled, None, 500, vec![("x-should-retry", "false")]),
        ] {
            let failure = Failure::new(category, "no").retry_after(wait_ms.map(Duration::from_millis));
            let error = ApiError::failed(&failure, &Secrets::default());
            let expected: Vec<_> = headers.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
            assert_eq!((error.status, error.headers()), (status, expected), "{category:?} {wait_ms:?}");
        }
    }

    #[test]
    fn client_is_told_not_to_retry_when_gateway_retried_or_a_tool_ran() {
        let attempt = |category| Attempted {
            provider: "p".into(),
            model: "m".into(),
            category: Some(category),
            message: None,
            duration: Duration::ZERO,
            workspace: None,
            sandbox: None,
        };
        for (category, attempts, acted, repeat) in [
            (Category::Server, 1, false, Repeat::ByStatus),
            (Category::Server, 3, false, Repeat::Never),
            (Category::RateLimit, 3, false, Repeat::ByStatus),
            (Category::RateLimit, 1, true, Repeat::Never),
            (Category::Unknown, 1, false, Repeat::Never),
        ] {
            let mut trace = Trace::default();
            trace.run = "r".into();
            trace.acted = acted;
            trace.attempts = vec![attempt(category); attempts];
            let error = ApiError::failed(&Failure::new(category, "no"), &Secrets::default()).of_run(&trace);
            assert_eq!(error.repeat, repeat, "{category:?} {attempts} {acted}");
            assert_eq!(error.trace.unwrap().attempts.len(), attempts);
        }
    }

    #[test]
    fn secrets_are_masked_when_a_cli_fails() {
        let failure = Failure::new(Category::RateLimit, "429 for key hunter2-hunter2")
            .hint("wait, hunter2-hunter2")
            .retry_after(Some(Duration::from_hours(1)));
        let error = ApiError::failed(&failure, &Secrets::new(["hunter2-hunter2".to_owned()]));
        let expected = json!({"error": {
            "message": "CLI failed: 429 for key ***", "type": "cli_error", "code": "rate_limit", "param": null,
            "detail": "429 for key ***", "hint": "wait, ***", "retry_after_ms": 3_600_000,
        }});
        assert_eq!(body(&error), expected);
    }

    #[test]
    fn message_is_first_line_of_reason_stripped_masked_and_truncated() {
        let secrets = Secrets::new(["hunter2-hunter2".to_owned()]);
        let long = "x".repeat(1000);
        for (reason, expected) in [
            ("no such disk\nat main.rs", "CLI failed: no such disk".to_owned()),
            ("\n  \n  second line counts\n", "CLI failed: second line counts".to_owned()),
            ("progress 1%\rprogress 2%", "CLI failed: progress 1%".to_owned()),
            ("\u{1b}[31mred\u{1b}[0m \u{7}bell", "CLI failed: red  bell".to_owned()),
            ("key hunter2-\u{1b}[1mhunter2", "CLI failed: key ***".to_owned()),
            ("", "CLI failed: no reason given".to_owned()),
            (&long, format!("CLI failed: {}…", "x".repeat(300 - 13))),
        ] {
            let error = ApiError::failed(&Failure::new(Category::Unknown, reason), &secrets);
            assert_eq!(*error.message, *expected, "{reason:?}");
            assert!(!error.detail.unwrap().contains('\u{1b}'));
        }
        // Truncation comes after masking, so no part of a secret is left at the end.
        let at_the_cut = format!("{}hunter2-hunter2", "y".repeat(280));
        let error = ApiError::failed(&Failure::new(Category::Unknown, at_the_cut), &secrets);
        assert!(!error.message.contains("hunter"), "{}", error.message);
    }

    #[test]
    fn unknown_model_lists_models_and_explains_when_name_is_a_known_cli() {
        let names: Vec<String> = (0..25).map(|n| format!("m{n}")).collect();
        let error =
            ApiError::unknown_model(&[]).known_cli("claude is not installed", "install it").listing_models(&names);
        assert_eq!(
            (&*error.message, error.detail.as_deref()),
            ("Unknown model: claude is not installed", Some("install it"))
        );
        let hint = error.hint.unwrap();
        assert!(
            hint.starts_with("models here: m0, m1,") && hint.ends_with("m19 and 5 more (GET /v1/models)"),
            "{hint}"
        );
    }

    #[test]
    fn unknown_model_has_the_documented_message() {
        let bare = json!({"error": {
            "message": "Unknown model", "type": "invalid_request_error", "code": "model_not_found", "param": "model",
        }});
        assert_eq!(body(&ApiError::unknown_model(&[])), bare);
        let near = ApiError::unknown_model(&["claude".into(), "codex".into()]);
        assert_eq!((near.status, body(&near)["error"]["detail"].as_str()), (400, Some("did you mean: claude, codex?")));
    }

    #[test]
    fn status_is_400_only_for_validation_failures_before_a_run() {
        let failure = Failure::new(Category::Validation, "the prompt is longer than 128 KiB");
        let error = ApiError::not_started(&failure, &Secrets::default());
        assert_eq!((error.status, error.kind, &*error.message), (400, INVALID_REQUEST, &*failure.message));
        let failure = Failure::new(Category::NotFound, "claude is not installed");
        assert_eq!(ApiError::not_started(&failure, &Secrets::default()).status, 500);
    }

    #[test]
    fn retry_after_is_rounded_up_when_gateway_is_busy() {
        let busy = ApiError::busy("all 4 slots are busy", Duration::from_millis(2001));
        assert_eq!((busy.status, busy.kind), (503, "overloaded"));
        assert_eq!(busy.headers()[0], ("retry-after", "3".to_owned()));
    }

    proptest::proptest! {
        #[test]
        fn detail_is_truncated_at_a_character_boundary(text in "\\PC{0,200}", times in 1usize..60) {
            let long = text.repeat(times);
            let cut = bounded(long.clone());
            assert!(cut.chars().count() <= MAX_DETAIL_CHARS);
            assert!(*cut == *long || long.starts_with(cut.trim_end_matches('…')));
        }
    }
}
