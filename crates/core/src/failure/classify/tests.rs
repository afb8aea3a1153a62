use proptest::prelude::*;

use super::*;

/// Each pattern of the general table in a message of a service or a CLI.
const IN_A_SENTENCE: [(Category, &str, &str); 61] = {
    use Category::{Authentication, Configuration, Network, NotFound, Quota, RateLimit, Server, Timeout, Validation};
    [
        (Quota, "insufficient_quota", r#"{"error":{"code":"insufficient_quota","message":"You exceeded your plan"}}"#),
        (Quota, "quota_exceeded", "Quota exceeded for metric generate_requests. Check your plan."),
        (Quota, "billing_hard_limit", "Error: billing_hard_limit_reached (organization)"),
        (Quota, "RESOURCE_EXHAUSTED", "got status: RESOURCE_EXHAUSTED. Please try again tomorrow"),
        (Quota, "credit_limit", "Your credit limit has been reached; add funds to continue"),
        (Quota, "usage_limit", "You've hit your usage limit. Upgrade to Pro"),
        (RateLimit, "rate_limit", "anthropic rate_limit_error: Number of request tokens has exceeded your limit"),
        (RateLimit, "rate.limit", "Rate limit reached for gpt-x in organization org-1"),
        (RateLimit, "RATE_LIMIT_EXCEEDED", r#"reason: "RATE_LIMIT_EXCEEDED", domain: "googleapis.com""#),
        (RateLimit, "too_many_requests", "Error: Too Many Requests"),
        (RateLimit, "429", "exceeded retry limit, last status: 429"),
        (RateLimit, "overloaded", r#"{"type":"overloaded_error","message":"Overloaded"}"#),
        (RateLimit, "throttl*", "ThrottlingException: Your request was throttled by Bedrock"),
        (RateLimit, "throttl*", "API call was throttled"),
        (Authentication, "invalid_api_key", "Incorrect key: invalid_api_key. Find yours in the dashboard"),
        (Authentication, "invalid_api_key", "Invalid API key - Fix external API key"),
        (Authentication, "unauthorized", "unexpected response: Unauthorized"),
        (Authentication, "UNAUTHENTICATED", "16 UNAUTHENTICATED: Request had invalid credentials"),
        (Authentication, "PERMISSION_DENIED", "7 PERMISSION_DENIED: The caller does not have permission"),
        (Authentication, "authentication_failed", "OAuth authentication failed, run login again"),
        (Authentication, "not_authenticated", "You are not authenticated. Please log in"),
        (Authentication, "401", "API Error: 401"),
        (Authentication, "403", "Request failed with status code 403"),
        (Validation, "invalid_request", r#"{"type":"invalid_request_error","message":"messages: at least one"}"#),
        (Validation, "malformed", "Malformed request body"),
        (Validation, "bad_request", "openai.BadRequest: Bad Request"),
        (Validation, "validation_error", "1 validation error for ChatRequest"),
        (Validation, "invalid_parameter", "Invalid parameter: temperature"),
        (Validation, "400", "HTTP 400"),
        (Network, "ECONNRESET", "TypeError: terminated: read ECONNRESET"),
        (Network, "ETIMEDOUT", "connect ETIMEDOUT 104.18.7.192:443"),
        (Network, "ENOTFOUND", "getaddrinfo ENOTFOUND api.openai.com"),
        (Network, "ECONNREFUSED", "connect ECONNREFUSED 127.0.0.1:11434"),
        (Network, "network_error", "A network error occurred"),
        (Network, "connection_failed", "Connection failed: error sending request for url"),
        (Network, "DEADLINE_EXCEEDED", "4 DEADLINE_EXCEEDED: Deadline exceeded after 59s"),
        (Network, "socket_hang_up", "Error: socket hang up"),
        (Server, "internal_server_error", "Internal Server Error"),
        (Server, "service_unavailable", "Service Unavailable: The model is loading"),
        (Server, "bad_gateway", "<title>Bad Gateway</title>"),
        (Server, "500", "API Error: 500"),
        (Server, "502", "upstream returned 502"),
        (Server, "503", "got status: 503"),
        (Server, "504", "unexpected status 504"),
        (Timeout, "timed_out", "The operation timed out."),
        (Timeout, "timeout", "ReadTimeout: request timeout"),
        (Timeout, "SIGTERM", "process was terminated by SIGTERM"),
        (Timeout, "SIGKILL", "child killed: SIGKILL"),
        (NotFound, "command_not_found", "sh: 1: gemini: command not found"),
        (NotFound, "ENOENT", "Error: spawn codex ENOENT"),
        (NotFound, "not_found", "Session not found"),
        (NotFound, "model_not_found", r#"{"code":"model_not_found","message":"The model does not exist"}"#),
        (NotFound, "404", "error 404"),
        (Configuration, "not_configured", "Provider is not configured: run setup"),
        (Configuration, "missing_config", "Missing config file: ~/.agent/config.json"),
        (Configuration, "invalid_config", "invalid_config: unknown field model"),
        (Configuration, "cli_not_installed", "cli_not_installed: codex"),
        (Configuration, "cli_not_installed", "The CLI not installed on this machine"),
        (Configuration, "EACCES", "Error: EACCES: permission denied, mkdir '/home/u/.agent'"),
        (Configuration, "errno_13", "PermissionError: [Errno 13] Permission denied: 'x'"),
        (Configuration, "os_error_13", "Error: Permission denied (os error 13)"),
    ]
};

#[test]
fn classifies_every_pattern_in_a_sentence() {
    for (category, pattern, text) in IN_A_SENTENCE {
        assert_eq!(classify(text, &[]), category, "{pattern}: {text}");
        // The sentence contains the words of the pattern.
        let words: Vec<String> =
            pattern.trim_end_matches('*').to_lowercase().split(['_', '.']).map(str::to_owned).collect();
        let lower = text.to_lowercase();
        assert!(words.iter().all(|word| lower.contains(word)), "{text} does not contain {pattern}");
    }
    for text in ["something odd", "", "the limit of my patience", "retry"] {
        assert_eq!(classify(text, &[]), Category::Unknown, "{text}");
    }
}

#[test]
fn every_pattern_has_a_sentence() {
    for (category, patterns) in PATTERNS {
        for pattern in patterns.iter().filter(|pattern| !["eai_again", "fetch_failed"].contains(pattern)) {
            let tried = IN_A_SENTENCE
                .iter()
                .any(|(of, _, text)| *of == category && matches_pattern(&text.to_lowercase(), pattern));
            assert!(tried, "no sentence for {pattern}");
        }
    }
}

#[test]
fn a_number_is_a_status_only_when_its_context_says_so() {
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
fn permission_denied_is_not_authentication_when_it_is_about_a_file() {
    for text in [
        "EACCES: permission denied, open '/root/.qwen/settings.json'",
        "Error: EACCES: permission denied, mkdir '/home/u/.gemini'",
        "spawn /usr/bin/foo EACCES",
        "PermissionError: [Errno 13] Permission denied: 'x.txt'",
        "Error: Permission denied (os error 13)",
        "bash: ./run.sh: Permission denied",
        "sh: 1: cannot create out.txt: Permission denied",
        "cat: notes: Permission denied",
        "open /etc/shadow: permission denied",
        "permission denied: /var/lib/x",
        "mkdir: cannot create directory ‘build’: Permission denied",
        "error: could not lock config file .git/config: Permission denied",
    ] {
        assert_ne!(classify(text, &[]), Category::Authentication, "{text}");
    }
    for text in [
        "7 PERMISSION_DENIED: The caller does not have permission",
        "permission denied for this model",
        "Permission denied: Consumer 'projects/1' has been suspended",
        "git@github.com: Permission denied (publickey).",
        "EACCES: permission denied, open '/x'\nAPI error: permission denied",
        "https://api.example.com/v1/messages: permission denied",
        "EACCES: permission denied, open '/x'\nstatus 401",
    ] {
        assert_eq!(classify(text, &[]), Category::Authentication, "{text}");
    }
    assert_eq!(classify("EACCES: permission denied, open '/x'", &[]), Category::Configuration);
}

#[test]
fn precedence_follows_the_table_not_the_text() {
    assert_eq!(classify("429 Too Many Requests: insufficient_quota", &[]), Category::Quota);
    assert_eq!(classify("timeout after 401 Unauthorized", &[]), Category::Authentication);
}

#[test]
fn rules_of_the_provider_come_first_unless_they_are_weak() {
    let rule = |contains: &str, is, weak| FailureRule { contains: contains.into(), is, weak, session_lost: false };
    let strong = [rule("high demand", Category::Server, false)];
    assert_eq!(classify("429: experiencing HIGH DEMAND", &strong), Category::Server);
    let weak = [rule("stream disconnected", Category::Network, true)];
    assert_eq!(classify("stream disconnected: rate limit reached", &weak), Category::RateLimit);
    assert_eq!(classify("stream disconnected: bye", &weak), Category::Network);
}

#[test]
fn parses_waiting_times() {
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
    fn never_panics(text in "\\PC{0,80}") {
        let _ = (classify(&text, &[]), retry_after(&text));
    }
}

#[test]
fn a_session_is_lost_only_when_a_rule_says_so() {
    for is in Category::ALL {
        let rule = |session_lost: bool| FailureRule { contains: "gone fishing".into(), is, weak: false, session_lost };
        for session_lost in [false, true] {
            assert_eq!(classify_session("Error: Gone fishing", &[rule(session_lost)]), (is, session_lost), "{is:?}");
        }
        // The first rule that matches decides both.
        assert_eq!(classify_session("gone fishing", &[rule(false), rule(true)]), (is, false), "{is:?}");
    }
    for (category, _, sentence) in IN_A_SENTENCE {
        assert_eq!(classify_session(sentence, &[]), (category, false), "{sentence}");
    }
}
