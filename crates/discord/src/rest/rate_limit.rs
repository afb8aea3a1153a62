//! Rate limits in the headers of a response. Pure except for the clock.

use std::time::Duration;

use reqwest::header::HeaderMap;
use twilight_http_ratelimiting::RateLimitHeaders;

/// Rate limits of a response.
pub(super) struct RateLimitInfo {
    pub(super) bucket: Option<RateLimitHeaders>,
    name: Option<Vec<u8>>,
    /// Delay before the next call.
    pub(super) wait: Option<Duration>,
    global: bool,
}

impl RateLimitInfo {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let seconds = |name: &str| {
            let seconds = text(name)?.parse::<f64>().ok()?;
            Duration::try_from_secs_f64(seconds).ok()
        };
        let name = text(RateLimitHeaders::BUCKET).map(|name| name.as_bytes().to_vec());
        let bucket = || {
            Some(RateLimitHeaders {
                bucket: name.clone()?,
                limit: text(RateLimitHeaders::LIMIT)?.parse().ok()?,
                remaining: text(RateLimitHeaders::REMAINING)?.parse().ok()?,
                reset_at: std::time::Instant::now() + seconds(RateLimitHeaders::RESET_AFTER)?,
            })
        };
        let wait = seconds("retry-after").max(seconds(RateLimitHeaders::RESET_AFTER));
        let global = text(RateLimitHeaders::SCOPE) == Some("global") || headers.contains_key("x-ratelimit-global");
        Self { bucket: bucket(), name, wait, global }
    }

    /// The bucket that is exhausted for this time; `None` for a global limit.
    pub(super) fn exhausted(self, wait: Duration) -> Option<RateLimitHeaders> {
        let reset_at = std::time::Instant::now() + wait;
        let limit = self.bucket.map_or(1, |bucket| bucket.limit);
        let bucket = self.name.filter(|_| !self.global)?;
        Some(RateLimitHeaders { bucket, limit, remaining: 0, reset_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(headers: &[(&'static str, &'static str)]) -> RateLimitInfo {
        RateLimitInfo::of(
            &headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect(),
        )
    }

    #[test]
    fn limit_applies_to_one_bucket_or_globally() {
        let route = [
            ("retry-after", "1"),
            ("x-ratelimit-bucket", "b"),
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "3"),
            ("x-ratelimit-reset-after", "1.25"),
        ];
        let found = limit(&route);
        assert_eq!(found.bucket.as_ref().map(|bucket| (bucket.limit, bucket.remaining)), Some((5, 3)));
        assert_eq!(found.wait, Some(Duration::from_millis(1250)));
        assert_eq!(found.exhausted(Duration::ZERO).map(|bucket| bucket.remaining), Some(0));
        for global in [&[("x-ratelimit-global", "true"), ("x-ratelimit-bucket", "b")][..], &[("retry-after", "9")], &[]]
        {
            assert!(limit(global).exhausted(Duration::ZERO).is_none(), "{global:?}");
        }
        assert_eq!(limit(&[("retry-after", "-1")]).wait, None);
    }
}
