//! Injected faults as data: an error instead of an answer, or an answer that is late, split or incomplete.
//!
//! [`crate::body`] applies them.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// Longest pause that a script can set. A larger value is probably a typo; [`Stall`] is for endless silence.
const MAX_PAUSE_MS: u64 = 3_600_000;

/// Error response; each dialect renders it in its own format.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedError {
    #[serde(deserialize_with = "error_status")]
    pub status: u16,
    /// Seconds, for the `Retry-After` header.
    pub retry_after: Option<u64>,
    /// Error type; by default the one that the vendor uses for this status.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// OpenAI's error code; by default the type.
    pub code: Option<String>,
    pub message: Option<String>,
}

/// Timing and faults of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DeliveryPlan {
    /// Pause before the first byte, including headers.
    pub delay: Duration,
    /// Pause between frames, or between pieces if the body is split.
    pub pace: Duration,
    pub stall: Option<Stall>,
    /// Number of body bytes after which the connection is dropped.
    pub drop_after: Option<usize>,
    /// Size of the pieces that the body is split into, even inside a character.
    pub chunk_bytes: Option<usize>,
}

/// Endless silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stall {
    /// Nothing is sent, not even headers.
    BeforeHeaders,
    /// Silence after the headers and this many bytes of the body.
    After(usize),
}

impl DeliveryPlan {
    /// Whether the body is sent without faults or pauses.
    #[must_use]
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self { delay: self.delay, ..Self::default() }
    }
}

/// Names that the vendors use for the errors of one status.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VendorErrorNames {
    pub message: &'static str,
    pub openai: (&'static str, Option<&'static str>),
    pub anthropic: &'static str,
    pub google: &'static str,
}

impl VendorErrorNames {
    /// Returns the names for `status`. An unlisted 4xx is a bad request, an unlisted 5xx a server error.
    #[must_use]
    pub(crate) fn of(status: u16) -> Self {
        let (message, openai, anthropic, google) = match status {
            401 => (
                "invalid API key",
                ("invalid_request_error", Some("invalid_api_key")),
                "authentication_error",
                "UNAUTHENTICATED",
            ),
            403 => ("permission denied", ("invalid_request_error", None), "permission_error", "PERMISSION_DENIED"),
            404 => ("not found", ("invalid_request_error", Some("not_found")), "not_found_error", "NOT_FOUND"),
            413 => ("request too large", ("invalid_request_error", None), "request_too_large", "INVALID_ARGUMENT"),
            429 => (
                "rate limit reached",
                ("requests", Some("rate_limit_exceeded")),
                "rate_limit_error",
                "RESOURCE_EXHAUSTED",
            ),
            503 => ("service unavailable", ("server_error", None), "api_error", "UNAVAILABLE"),
            504 => ("deadline exceeded", ("server_error", None), "timeout_error", "DEADLINE_EXCEEDED"),
            529 => ("overloaded", ("server_error", Some("overloaded")), "overloaded_error", "UNAVAILABLE"),
            400..500 => ("bad request", ("invalid_request_error", None), "invalid_request_error", "INVALID_ARGUMENT"),
            _ => ("internal server error", ("server_error", None), "api_error", "INTERNAL"),
        };
        Self { message, openai, anthropic, google }
    }
}

impl ScriptedError {
    /// Creates an error of the mock itself, for a request that it cannot answer.
    #[must_use]
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, retry_after: None, kind: None, code: None, message: Some(message.into()) }
    }

    #[must_use]
    pub(crate) fn vendor_names(&self) -> VendorErrorNames {
        VendorErrorNames::of(self.status)
    }

    #[must_use]
    pub(crate) fn message(&self) -> &str {
        self.message.as_deref().unwrap_or(self.vendor_names().message)
    }
}

fn error_status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    match u16::deserialize(deserializer)? {
        status @ 400..=599 => Ok(status),
        other => Err(D::Error::custom(format!("status {other} is not an error: use 400 to 599"))),
    }
}

/// Deserializes a pause in milliseconds.
pub(crate) fn pause<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match u64::deserialize(deserializer)? {
        ms if ms <= MAX_PAUSE_MS => Ok(Duration::from_millis(ms)),
        ms => Err(D::Error::custom(format!("{ms} ms is more than an hour: use `stall` for endless silence"))),
    }
}

/// Deserializes the size of pieces, which must not be 0.
pub(crate) fn piece_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    match usize::deserialize(deserializer)? {
        0 => Err(D::Error::custom("chunk_bytes must be at least 1")),
        size => Ok(Some(size)),
    }
}

/// Deserializes `true`, `false` or a number of bytes.
pub(crate) fn stall<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Stall>, D::Error> {
    struct StallVisitor;
    impl Visitor<'_> for StallVisitor {
        type Value = Option<Stall>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("true, false or a number of bytes")
        }

        fn visit_bool<E>(self, stalls: bool) -> Result<Self::Value, E> {
            Ok(stalls.then_some(Stall::BeforeHeaders))
        }

        fn visit_u64<E: Error>(self, bytes: u64) -> Result<Self::Value, E> {
            let bytes = usize::try_from(bytes).map_err(|_| E::custom("too many bytes"))?;
            Ok(Some(Stall::After(bytes)))
        }
    }
    deserializer.deserialize_any(StallVisitor)
}
