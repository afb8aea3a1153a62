//! What can go wrong on purpose: an error instead of an answer, and an answer that comes late, in pieces or not whole.
//!
//! Only as data; [`crate::body`] does it to the bytes.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// The longest a script may wait: more is a slip of the finger, and [`Stall`] is for ever.
const MAX_PAUSE_MS: u64 = 3_600_000;

/// An error of the API, as every dialect words it in its own way.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorAnswer {
    #[serde(deserialize_with = "error_status")]
    pub status: u16,
    /// Seconds, for the `Retry-After` header.
    pub retry_after: Option<u64>,
    /// The vendor's name for it; by default what the vendor uses for this status.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// OpenAI's second name for it; by default the first.
    pub code: Option<String>,
    pub message: Option<String>,
}

/// How an answer is carried to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Delivery {
    /// Before the first byte, headers included.
    pub delay: Duration,
    /// Between frames, or between pieces when they are cut.
    pub pace: Duration,
    pub stall: Option<Stall>,
    /// Bytes of the body after which the connection is dropped.
    pub drop_after: Option<usize>,
    /// The size of the pieces the body is written in, wherever that cuts.
    pub chunk_bytes: Option<usize>,
}

/// Silence without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stall {
    /// Not even headers.
    AtOnce,
    /// Headers and this many bytes of the body.
    After(usize),
}

impl Delivery {
    /// Whether the body goes out as it is.
    #[must_use]
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self { delay: self.delay, ..Self::default() }
    }
}

/// What the vendors call an error of one status.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wording {
    pub message: &'static str,
    pub openai: (&'static str, Option<&'static str>),
    pub anthropic: &'static str,
    pub google: &'static str,
}

impl Wording {
    /// The usual words for `status`; any other 4xx is a bad request, any other 5xx a server's error.
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

impl ErrorAnswer {
    /// One of our own, for a request that cannot be answered.
    #[must_use]
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, retry_after: None, kind: None, code: None, message: Some(message.into()) }
    }

    #[must_use]
    pub(crate) fn wording(&self) -> Wording {
        Wording::of(self.status)
    }

    #[must_use]
    pub(crate) fn message(&self) -> &str {
        self.message.as_deref().unwrap_or(self.wording().message)
    }
}

fn error_status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    match u16::deserialize(deserializer)? {
        status @ 400..=599 => Ok(status),
        other => Err(D::Error::custom(format!("status {other} is no error: write one from 400 to 599"))),
    }
}

/// Milliseconds.
pub(crate) fn pause<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match u64::deserialize(deserializer)? {
        ms if ms <= MAX_PAUSE_MS => Ok(Duration::from_millis(ms)),
        ms => Err(D::Error::custom(format!("{ms} ms is more than an hour: for silence without an end write `stall`"))),
    }
}

/// A size of pieces, which cannot be nothing.
pub(crate) fn piece<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    match usize::deserialize(deserializer)? {
        0 => Err(D::Error::custom("pieces of 0 bytes never come to an end")),
        size => Ok(Some(size)),
    }
}

/// `true`, `false` or a number of bytes.
pub(crate) fn stall<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Stall>, D::Error> {
    struct When;
    impl Visitor<'_> for When {
        type Value = Option<Stall>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("true, false or a number of bytes")
        }

        fn visit_bool<E>(self, stalls: bool) -> Result<Self::Value, E> {
            Ok(stalls.then_some(Stall::AtOnce))
        }

        fn visit_u64<E: Error>(self, bytes: u64) -> Result<Self::Value, E> {
            let bytes = usize::try_from(bytes).map_err(|_| E::custom("too many bytes"))?;
            Ok(Some(Stall::After(bytes)))
        }
    }
    deserializer.deserialize_any(When)
}
