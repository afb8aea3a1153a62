use proptest::prelude::*;

use super::*;

#[test]
fn every_pattern_in_a_sentence() {
    use Category::*;
    for (text, category) in [
        ("Error: insufficient_quota: check your plan", Quota),
        ("Quota exceeded. Check your plan and billing details.", Quota),
        ("billing_hard_limit has been reached", Quota),
        ("status RESOURCE_EXHAUSTED", Quota),
        ("credit limit reached", Quota),
        ("You've hit your usage limit.", Quota),
        ("rate_limit_error: slow down", RateLimit),
        ("Rate limit reached for requests", RateLimit),
        ("RATE_LIMIT_EXCEEDED", RateLimit),
        ("ratelimited", RateLimit),
        ("Too Many Requests", RateLimit),
        ("HTTP 429", RateLimit),
        ("The model is overloaded", RateLimit),
        ("request was throttled", RateLimit),
        ("Invalid API key provided", Authentication),
        ("401 Unauthorized", Authentication),
        ("code UNAUTHENTICATED", Authentication),
        ("PERMISSION_DENIED on project", Authentication),
        ("authentication_failed", Authentication),
        ("not authenticated", Authentication),
        ("returned 403", Authentication),
        ("invalid_request_error", Validation),
        ("malformed JSON", Validation),
        ("400 Bad Request", Validation),
        ("validation error: prompt", Validation),
        ("invalid parameter: top_p", Validation),
        ("read ECONNRESET", Network),
        ("connect ETIMEDOUT 1.2.3.4:443", Network),
        ("getaddrinfo ENOTFOUND api.example.com", Network),
        ("connect ECONNREFUSED 127.0.0.1:1", Network),
        ("network error", Network),
        ("Connection failed: error sending request", Network),
        ("DEADLINE_EXCEEDED", Network),
        ("socket hang up", Network),
        ("Internal Server Error", Server),
        ("Service Unavailable", Server),
        ("502 Bad Gateway", Server),
        ("API Error: 500", Server),
        ("status: 504", Server),
        ("the operation timed out", Timeout),
        ("request timeout", Timeout),
        ("killed by SIGTERM", Timeout),
        ("SIGKILL", Timeout),
        ("sh: foo: command not found", NotFound),
        ("spawn codex ENOENT", NotFound),
        ("Session not found", NotFound),
        ("model_not_found", NotFound),
        ("error 404", NotFound),
        ("provider not configured", Configuration),
        ("missing config file", Configuration),
        ("invalid_config: x", Configuration),
        ("cli_not_installed", Configuration),
        ("something odd", Unknown),
        ("", Unknown),
    ] {
        assert_eq!(classify(text, &[]), category, "{text}");
    }
}

#[test]
fn a_number_is_a_status_only_where_it_says_so() {
    for text in [
        "main.rs:401",
        "took 500ms",
        "listening on :4290",
        "wrote 404.html",
        "v1.500.2",
        "in 429 files",
        "a-503",
        "50%",
        "unicode 401",
        "cannot decode 400 frames",
        "opencode 500",
    ] {
        assert_eq!(classify(text, &[]), Category::Unknown, "{text}");
    }
    for (text, category) in [
        ("503", Category::Server),
        ("HTTP/1.1 401", Category::Authentication),
        ("HTTP/1.0 500", Category::Server),
        ("HTTP/3 502", Category::Server),
        ("HTTP 503", Category::Server),
        ("status=429", Category::RateLimit),
        (r#"{"code":404}"#, Category::NotFound),
        ("unexpected status 500:", Category::Server),
        ("API Error: 400 messages.0: field required", Category::Validation),
        ("server returned 502", Category::Server),
        ("got a 429 Too Many Requests", Category::RateLimit),
    ] {
        assert_eq!(classify(text, &[]), category, "{text}");
    }
}

#[test]
fn precedence_follows_the_table_not_the_text() {
    assert_eq!(classify("429 Too Many Requests: insufficient_quota", &[]), Category::Quota);
    assert_eq!(classify("timeout after 401 Unauthorized", &[]), Category::Authentication);
}

#[test]
fn a_providers_words_come_first_unless_weak() {
    let rule = |contains: &str, is, weak| Rule { contains: contains.into(), is, weak };
    let strong = [rule("high demand", Category::Server, false)];
    assert_eq!(classify("429: experiencing HIGH DEMAND", &strong), Category::Server);
    let weak = [rule("stream disconnected", Category::Network, true)];
    assert_eq!(classify("stream disconnected: rate limit reached", &weak), Category::RateLimit);
    assert_eq!(classify("stream disconnected: bye", &weak), Category::Network);
}

#[test]
fn waiting_times() {
    for (text, millis) in [
        ("retry after 30 seconds", Some(30_000)),
        ("retry after 100ms", Some(100)),
        ("please wait 5 seconds", Some(5_000)),
        ("Retry-After: 7", Some(7_000)),
        ("retry-after-ms: 250", Some(250)),
        ("Please try again in 1.5s.", Some(1_500)),
        ("try again in 2 minutes", Some(120_000)),
        ("try again in 1m30s", Some(90_000)),
        ("Please retry in 6h0m1.5s", Some(21_601_500)),
        (r#"{"retryDelay":"34s"}"#, Some(34_000)),
        ("wait for 10 sec", Some(10_000)),
        ("try again at 1:23 AM", None),
        ("retry after a while", None),
        ("Please wait and try again later", None),
        ("wait 9999999999999999999999 hours", None),
        ("try again in 3 days 4 hours 5 minutes", Some(273_900_000)),
        ("try again in 1 hour and 5 minutes", Some(3_900_000)),
        ("try again in 1 minute, 30 seconds", Some(90_000)),
        ("Please try again after 30 seconds", Some(30_000)),
        (r#"{"retryAfterMs": 250}"#, Some(250)),
        (r#"{"retryAfter": 7}"#, Some(7_000)),
        ("wait at least 10 seconds", Some(10_000)),
        ("try again in 3 fortnights", None),
        ("retry after 5 and not before", Some(5_000)),
    ] {
        assert_eq!(retry_after(text).map(|wait| wait.as_millis()), millis, "{text}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(text in "\\PC{0,80}") {
        let _ = (classify(&text, &[]), retry_after(&text));
    }
}
