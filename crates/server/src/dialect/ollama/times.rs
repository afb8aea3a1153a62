//! Times as Ollama writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// A time in seconds since 1970, as in `2026-01-31T12:00:00Z`.
pub(super) fn rfc3339(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// The time after this span from now.
pub(super) fn after_now(span: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339((now + span).as_secs())
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
