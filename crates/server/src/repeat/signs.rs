//! Headers by which a client says that it repeats a request, and how long it waits for an answer.

use std::time::Duration;

use http::HeaderMap;

/// Number of times that the client has sent this request before.
const RETRY_COUNT_HEADER: &str = "x-stainless-retry-count";

/// Seconds after which the client gives up, the most specific first: without any data, and altogether.
const TIMEOUT_HEADERS: [&str; 2] = ["x-stainless-read-timeout", "x-stainless-timeout"];

/// Limit of a time that a client announces.
const MAX_TIMEOUT: Duration = Duration::from_hours(24);

pub(super) fn is_retry(headers: &HeaderMap) -> bool {
    headers
        .get(RETRY_COUNT_HEADER)
        .and_then(|count| count.to_str().ok()?.parse::<u32>().ok())
        .is_some_and(|count| count > 0)
}

/// Whether the client repeats requests by itself.
pub(super) fn counts_retries(headers: &HeaderMap) -> bool {
    headers.contains_key(RETRY_COUNT_HEADER)
}

/// Time after which the client gives up, if it announced one.
pub(super) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds = |name: &&str| headers.get(*name)?.to_str().ok()?.parse::<f64>().ok();
    let seconds = TIMEOUT_HEADERS.iter().find_map(seconds)?;
    Duration::try_from_secs_f64(seconds).ok().filter(|timeout| *timeout <= MAX_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn reads_the_number_of_earlier_requests() {
        for (value, expected) in [("0", false), ("1", true), ("2", true), ("", false), ("-1", false), ("many", false)] {
            assert_eq!(is_retry(&headers(&[(RETRY_COUNT_HEADER, value)])), expected, "{value}");
        }
        assert!(!is_retry(&HeaderMap::new()));
    }

    #[test]
    fn reads_the_time_that_a_client_announces() {
        let [read, whole] = TIMEOUT_HEADERS;
        for (pairs, expected) in [
            (&[(read, "600")][..], Some(600_000)),
            (&[(whole, "1.5")], Some(1500)),
            (&[(whole, "600"), (read, "2")], Some(2000)),
            (&[(read, "NaN")], None),
            (&[(read, "inf")], None),
            (&[(read, "-1")], None),
            (&[(read, "None"), (whole, "3")], Some(3000)),
            (&[(read, "1e30")], None),
            (&[], None),
        ] {
            assert_eq!(timeout(&headers(pairs)), expected.map(Duration::from_millis), "{pairs:?}");
        }
    }
}
