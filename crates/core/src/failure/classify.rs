//! Classifies the error messages of CLIs and services by their text.

use std::time::Duration;

use serde::Deserialize;

use super::category::Category;

/// Wording of a provider, and the category that it means.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureRule {
    /// Text to search for, ignoring case.
    pub contains: String,
    pub is: Category,
    /// Applies only if no general pattern matches.
    #[serde(default)]
    pub weak: bool,
    /// The wording means that the session cannot be resumed.
    #[serde(default)]
    pub session_lost: bool,
}

/// The general patterns, in order of precedence. `_` stands for one optional character.
const PATTERNS: [(Category, &[&str]); 9] = [
    (
        Category::Quota,
        &[
            "insufficient_quota",
            "quota_exceeded",
            "billing_hard_limit",
            "resource_exhausted",
            "credit_limit",
            "usage_limit",
        ],
    ),
    (Category::RateLimit, &["rate_limit", "too_many_requests", "overloaded", "throttl"]),
    (
        Category::Authentication,
        &[
            "invalid_api_key",
            "unauthorized",
            "unauthenticated",
            "permission_denied",
            "authentication_failed",
            "not_authenticated",
        ],
    ),
    (Category::Validation, &["invalid_request", "malformed", "bad_request", "validation_error", "invalid_parameter"]),
    (
        Category::Network,
        &[
            "econnreset",
            "etimedout",
            "enotfound",
            "econnrefused",
            "network_error",
            "connection_failed",
            "deadline_exceeded",
            "socket_hang_up",
            "eai_again",
            "fetch_failed",
        ],
    ),
    (Category::Server, &["internal_server_error", "service_unavailable", "bad_gateway"]),
    (Category::Timeout, &["timed_out", "timeout", "sigterm", "sigkill"]),
    (Category::NotFound, &["command_not_found", "enoent", "not_found", "model_not_found"]),
    (
        Category::Configuration,
        &[
            "not_configured",
            "missing_config",
            "invalid_config",
            "cli_not_installed",
            "eacces",
            "errno_13",
            "os_error_13",
        ],
    ),
];

/// The pattern that services and file systems share.
const PERMISSION_DENIED: &str = "permission_denied";

/// Phrases about operations on files.
const FILE_PHRASES: [&str; 18] = [
    "cannot mkdir",
    "cannot open",
    "cannot create",
    "cannot touch",
    "cannot remove",
    "cannot write",
    "cannot read",
    "cannot execute",
    "cannot make",
    "cannot stat",
    "cannot lock",
    "could not open",
    "could not create",
    "could not lock",
    "could not write",
    "failed to create",
    "failed to open",
    "failed to write",
];

/// HTTP statuses: number, category, and the phrase that may follow the number.
const STATUSES: [(u16, Category, &str); 15] = [
    (400, Category::Validation, "bad request"),
    (401, Category::Authentication, "unauthorized"),
    (402, Category::Quota, "payment required"),
    (403, Category::Authentication, "forbidden"),
    (404, Category::NotFound, "not found"),
    (408, Category::Timeout, "request timeout"),
    (413, Category::Validation, "payload too large"),
    (422, Category::Validation, "unprocessable"),
    (429, Category::RateLimit, "too many requests"),
    (500, Category::Server, "internal server error"),
    (502, Category::Server, "bad gateway"),
    (503, Category::Server, "service unavailable"),
    (504, Category::Server, "gateway time"),
    (520, Category::Server, "web server"),
    (529, Category::RateLimit, "overloaded"),
];

/// Words that mark the number after them as a status.
const STATUS_WORDS: [&str; 5] = ["http", "status", "code", "error", "returned"];

/// Returns the category of `text`: by the rules of the provider, then the general patterns, then its weak rules.
#[must_use]
pub fn classify(text: &str, rules: &[FailureRule]) -> Category {
    classify_session(text, rules).0
}

/// Like [`classify`], and whether the rule that matched means that the session cannot be resumed. No general pattern
/// means that.
#[must_use]
pub fn classify_session(text: &str, rules: &[FailureRule]) -> (Category, bool) {
    let text = text.to_lowercase();
    let ruled = |weak: bool| {
        let rule = rules.iter().find(|rule| rule.weak == weak && text.contains(&rule.contains.to_lowercase()));
        rule.map(|rule| (rule.is, rule.session_lost))
    };
    let general = || general(&text).map(|category| (category, false));
    ruled(false).or_else(general).or_else(|| ruled(true)).unwrap_or((Category::Unknown, false))
}

/// Returns the first category, in order of precedence, with a pattern or a status that matches.
fn general(text: &str) -> Option<Category> {
    let statuses = statuses(text);
    PATTERNS
        .iter()
        .find(|(category, patterns)| {
            statuses.contains(category) || patterns.iter().any(|pattern| matches_in_context(text, pattern))
        })
        .map(|(category, _)| *category)
}

/// Whether `text` contains the pattern with its intended meaning.
fn matches_in_context(text: &str, pattern: &str) -> bool {
    match pattern {
        PERMISSION_DENIED => text.lines().any(|line| matches_pattern(line, pattern) && !is_about_a_file(line)),
        _ => matches_pattern(text, pattern),
    }
}

/// Whether a line reports a permission that the file system denied, and not a service.
fn is_about_a_file(line: &str) -> bool {
    const ERRNOS: [&str; 4] = ["eacces", "eperm", "errno 13", "os error 13"];
    const SHELLS: [&str; 9] =
        ["sh: ", "bash: ", "zsh: ", "dash: ", "/bin/sh: ", "/bin/bash: ", "cat: ", "ls: ", "tee: "];
    let Some(at) = line.find("permission") else { return false };
    let quotes = ['\'', '"', '`', '‘', '’'];
    let path = |word: &str| {
        let word = word.trim_matches(quotes);
        ["/", "./", "../", "~/"].iter().any(|start| word.starts_with(start)) && !word.contains("://")
    };
    let before = line[..at].trim_end_matches([' ', ':']);
    let after = line[at..].split_once("denied").map_or("", |(_, after)| after);
    let after = after.trim_start_matches([' ', ':', ',', '(']);
    ERRNOS.iter().any(|errno| line.contains(errno))
        || SHELLS.iter().any(|shell| line.trim_start().starts_with(shell))
        || FILE_PHRASES.iter().any(|words| before.contains(words))
        || before.split_whitespace().next_back().is_some_and(path)
        || after.split_whitespace().next().is_some_and(path)
}

/// Whether `text` contains the words of the pattern with at most one character between two words.
fn matches_pattern(text: &str, pattern: &str) -> bool {
    let (first, rest) = pattern.split_once('_').unwrap_or((pattern, ""));
    text.match_indices(first).any(|(at, _)| follows(&text[at + first.len()..], rest))
}

fn follows(text: &str, pattern: &str) -> bool {
    if pattern.is_empty() {
        return true;
    }
    let (word, rest) = pattern.split_once('_').unwrap_or((pattern, ""));
    let after_one = text.char_indices().nth(1).map(|(at, _)| &text[at..]);
    [Some(text), after_one]
        .into_iter()
        .flatten()
        .any(|text| text.strip_prefix(word).is_some_and(|text| follows(text, rest)))
}

/// Returns the categories of the HTTP statuses in `text`.
fn statuses(text: &str) -> Vec<Category> {
    let mut found = Vec::new();
    for (number, category, phrase) in STATUSES {
        let digits = number.to_string();
        for (at, _) in text.match_indices(&digits) {
            let (before, after) = (&text[..at], &text[at + digits.len()..]);
            if stands_alone(before, after) && (is_introduced(before) || after.trim_start().starts_with(phrase)) {
                found.push(category);
            }
        }
    }
    found
}

/// Whether a number is not part of a longer number, word or file name.
fn stands_alone(before: &str, after: &str) -> bool {
    let free_before = !before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'));
    let mut following = after.chars();
    let free_after = match following.next() {
        Some('.' | ':') => !following.next().is_some_and(char::is_alphanumeric),
        Some(c) => !c.is_alphanumeric() && !matches!(c, '_' | '%'),
        None => true,
    };
    free_before && free_after
}

/// Whether a number is at the start of the text, or after one of [`STATUS_WORDS`].
fn is_introduced(before: &str) -> bool {
    let before = before.trim_end_matches([' ', ':', '=', '"', '\'', '(', '[', '{', '/', '#', '\t']);
    let version = before.rfind("http/").filter(|at| before[at + 5..].chars().all(|c| c.is_ascii_digit() || c == '.'));
    let before = version.map_or(before, |at| &before[..at + 4]);
    let whole = |rest: &str| !rest.ends_with(char::is_alphanumeric);
    before.is_empty() || STATUS_WORDS.iter().any(|word| before.strip_suffix(word).is_some_and(whole))
}

/// Units of time, in seconds.
const SECOND: f64 = 1.0;
const MILLISECOND: f64 = 0.001;

/// Returns how long the text asks to wait before a retry.
#[must_use]
pub fn retry_after(text: &str) -> Option<Duration> {
    /// Phrases before a time, and the unit of a bare number after them.
    const PHRASES: [(&str, f64); 14] = [
        ("retry-after-ms", MILLISECOND),
        ("retry_after_ms", MILLISECOND),
        ("retryafterms", MILLISECOND),
        ("retry_after_seconds", SECOND),
        ("retryafter", SECOND),
        ("try again after", SECOND),
        ("wait at least", SECOND),
        ("retry-after", SECOND),
        ("retry_after", SECOND),
        ("retry after", SECOND),
        ("retrydelay", SECOND),
        ("try again in", SECOND),
        ("retry in", SECOND),
        ("wait", SECOND),
    ];
    let text = text.to_lowercase();
    PHRASES.iter().find_map(|(phrase, unit)| {
        text.match_indices(phrase).find_map(|(at, _)| {
            let rest = text[at + phrase.len()..].trim_start_matches([' ', ':', '=', '"', '\'', '\t']);
            let rest = rest.strip_prefix("for ").or_else(|| rest.strip_prefix("about ")).unwrap_or(rest);
            duration(rest, *unit)
        })
    })
}

/// Parses `30`, `1.5s`, `100 ms`, `2 minutes` or `1m30s` at the beginning of `text`.
fn duration(text: &str, default_unit: f64) -> Option<Duration> {
    /// Words that may follow a bare number without being its unit.
    const SEPARATE: [&str; 4] = ["and", "before", "or", "then"];
    /// Longer waits are ignored.
    const MAX_SECONDS: f64 = 30.0 * 24.0 * 3600.0;
    let mut rest = text;
    let mut seconds = 0.0;
    let mut any = false;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = rest[..digits].trim_end_matches('.');
        let Ok(value) = number.parse::<f64>() else { break };
        let after = rest[digits..].trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let word = &after[..letters];
        let Some(factor) = (if word.is_empty() { Some(default_unit) } else { unit(word) }) else {
            // "3 fortnights": a number with an unknown unit is not a time.
            if !any && !SEPARATE.contains(&word) {
                return None;
            }
            if !any {
                seconds = value * default_unit;
                any = true;
            }
            break;
        };
        seconds += value * factor;
        any = true;
        let more = after[letters..].trim_start_matches([' ', ',']);
        rest = more.strip_prefix("and ").unwrap_or(more);
        if word.is_empty() {
            break;
        }
    }
    (any && seconds.is_finite() && seconds <= MAX_SECONDS)
        .then(|| Duration::from_millis((seconds * 1000.0).round() as u64))
}

fn unit(word: &str) -> Option<f64> {
    match word {
        "ms" | "msec" | "millis" | "millisecond" | "milliseconds" => Some(MILLISECOND),
        "s" | "sec" | "secs" | "second" | "seconds" => Some(SECOND),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(60.0),
        "h" | "hr" | "hrs" | "hour" | "hours" => Some(3600.0),
        "d" | "day" | "days" => Some(86_400.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
