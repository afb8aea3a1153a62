//! Conversion of an upstream's error response into a [`Failure`]: its message, its category and the time to wait.
//!
//! The category is taken from the error's names (`code`, `type`) first, then from the status. The message is used only
//! if it is more specific than the status, because it may quote arbitrary text.

use std::time::Duration;

use serde_json::Value;
use trunkline_core::ansi;
use trunkline_core::failure::{Category, Failure, Rule, classify, retry_after};

/// Maximum length of a failure's message, in characters.
const MAX_MESSAGE_CHARS: usize = 4000;

/// Maximum size of an error inside a stream that is parsed: as a `Value` it takes many times its size.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Wait after a rate limit without a time.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

const MAX_WAIT: Duration = Duration::from_hours(30 * 24);

/// Error names that determine the category if there is no status.
const NAMES: [(&str, Category); 5] = [
    ("server_error", Category::Server),
    ("internal_error", Category::Server),
    ("api_error", Category::Server),
    ("authentication_error", Category::Authentication),
    ("permission_error", Category::Authentication),
];

/// The response headers that determine when to retry.
#[derive(Debug, Clone, Copy, Default)]
pub struct UpstreamHeaders<'a> {
    pub retry_after: Option<&'a str>,
    pub retry_after_ms: Option<&'a str>,
    /// The upstream's clock: a date in `retry-after` is relative to it.
    pub date: Option<&'a str>,
    /// Our clock: Unix time in seconds, used if there is no `date`.
    pub now: i64,
}

/// Converts a response with an error status.
#[must_use]
pub fn failure(status: u16, headers: &UpstreamHeaders<'_>, body: &[u8], rules: &[Rule]) -> Failure {
    let text = String::from_utf8_lossy(body);
    let error = UpstreamError::parse(&text);
    if let Some(failure) = &error.gateway_failure {
        return failure.clone();
    }
    let failure = error.failure(Some(status), rules);
    let wait = headers.wait().or(failure.retry_after);
    match status {
        300..400 => {
            let message = format!("the upstream redirects (status {status}); redirects are not followed");
            Failure::new(Category::Configuration, message).hint("set base_url to where it redirects to")
        }
        _ => failure.retry_after(wait),
    }
}

/// Converts an error inside a response body; `json` is the value of its `error`.
pub(super) fn in_band(json: &str, rules: &[Rule]) -> Failure {
    let error = match serde_json::from_str::<Value>(json) {
        Ok(value) if json.len() <= MAX_ERROR_BYTES => UpstreamError::from_json(&value),
        Ok(_) | Err(_) => UpstreamError { message: summarize(json), ..UpstreamError::default() },
    };
    error.gateway_failure.clone().unwrap_or_else(|| error.failure(error.status, rules))
}

/// An error as the upstream reported it.
#[derive(Debug, Default)]
struct UpstreamError {
    message: Option<String>,
    /// `code`, `type` and `status`, if they are names rather than numbers.
    names: String,
    /// `code` or `status`, if it is a number.
    status: Option<u16>,
    /// The failure, if the upstream is another trunkline, which has classified it already.
    gateway_failure: Option<Failure>,
}

impl UpstreamError {
    fn parse(body: &str) -> Self {
        let json = serde_json::from_str::<Value>(body.trim_start_matches('\u{feff}')).ok();
        // Gemini wraps its error in a list.
        let first = |json: Value| match json {
            Value::Array(list) => list.into_iter().next(),
            Value::Object(_) => Some(json),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        match json.and_then(first) {
            Some(value) => {
                let error = value.get("error").filter(|error| !error.is_null());
                let parsed = error.map(Self::from_json).unwrap_or_default();
                // Some servers put the message next to `error`, not inside it.
                if parsed.message.is_some() { parsed } else { Self { names: parsed.names, ..Self::from_json(&value) } }
            }
            None => Self { message: summarize(body), ..Self::default() },
        }
    }

    fn from_json(error: &Value) -> Self {
        let text = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        if let Some(text) = error.as_str() {
            return Self { message: bounded(text), ..Self::default() };
        }
        let number = |name: &str| {
            let value = error.get(name)?;
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
            u16::try_from(number).ok().filter(|status| (400..600).contains(status))
        };
        let status = number("code").or_else(|| number("status")).or_else(|| number("status_code"));
        // OpenAI uses this name for any client error: it is less specific than the status.
        let is_specific = |name: &&str| *name != "invalid_request_error" && name.parse::<u16>().is_err();
        let names: Vec<&str> =
            ["code", "type", "status"].into_iter().filter_map(|name| text(name).filter(is_specific)).collect();
        let message = ["message", "msg", "detail", "error_description", "error"].into_iter().find_map(text);
        let message = message.map(str::to_owned).or_else(|| validation(error.get("detail")?));
        // The message of the server behind a proxy; the proxy's own message only reports that it failed.
        let proxied = error.pointer("/metadata/raw").and_then(Value::as_str).map(|raw| format!(": {raw}"));
        let message = message.map(|message| message + &proxied.unwrap_or_default());
        Self {
            message: message.as_deref().and_then(bounded),
            names: names.join(" "),
            status,
            gateway_failure: gateway_failure(error),
        }
    }

    fn failure(&self, status: Option<u16>, rules: &[Rule]) -> Failure {
        let default_message = || match status {
            Some(status) => format!("the upstream answered with status {status}"),
            None => "the upstream reported an error without a message".to_owned(),
        };
        let message = self.message.clone().unwrap_or_else(default_message);
        let category = self.category(status, &message, rules);
        let wait = retry_after(&message).or((category == Category::RateLimit).then_some(DEFAULT_WAIT));
        Failure::new(category, message).retry_after(wait)
    }

    fn category(&self, status: Option<u16>, message: &str, rules: &[Rule]) -> Category {
        let status_text = status.map(|status| format!("status {status}")).unwrap_or_default();
        let all = format!("{status_text}\n{}\n{message}", self.names);
        let by_rules = classify(&all, rules);
        if by_rules != classify(&all, &[]) {
            return by_rules;
        }
        let (by_name, by_message) = (classify(&self.names, &[]), classify(message, &[]));
        let by_status = match (classify(&status_text, &[]), status) {
            (Category::Unknown, Some(400..500)) => Category::Validation,
            (Category::Unknown, Some(500..)) => Category::Server,
            (Category::Unknown, None) => {
                NAMES.iter().find(|(name, _)| self.names.contains(name)).map_or(Category::Unknown, |(_, is)| *is)
            }
            (category, _) => category,
        };
        match (by_name, by_status, by_message) {
            (Category::Unknown | Category::RateLimit, Category::RateLimit, Category::Quota) => Category::Quota,
            (Category::Unknown, Category::RateLimit, _) => Category::RateLimit,
            (Category::Unknown, Category::Server | Category::Unknown, _) if by_message != Category::Unknown => {
                by_message
            }
            (Category::Unknown, _, Category::Quota | Category::RateLimit | Category::Authentication) => by_message,
            (Category::Unknown, by_status, _) => by_status,
            (by_name, _, _) => by_name,
        }
    }
}

impl UpstreamHeaders<'_> {
    fn wait(&self) -> Option<Duration> {
        let number = |text: Option<&str>, unit: f64| {
            let seconds =
                text?.trim().parse::<f64>().ok().filter(|seconds| *seconds >= 0.0 && seconds.is_finite())? * unit;
            // A number that does not fit into a `Duration` is a very long wait, not a missing one.
            Some(Duration::try_from_secs_f64(seconds).unwrap_or(MAX_WAIT))
        };
        let until = || {
            let seconds = |date: &str| Some(jiff::fmt::rfc2822::parse(date.trim()).ok()?.timestamp().as_second());
            let now = self.date.and_then(seconds).unwrap_or(self.now);
            // A date in the past means no wait.
            Some(Duration::from_secs(u64::try_from(seconds(self.retry_after?)?.saturating_sub(now)).unwrap_or(0)))
        };
        // A date that cannot be parsed but has a year in the far future.
        let far_future = || {
            let years = self.retry_after?.split_whitespace().filter_map(|word| word.parse::<u32>().ok());
            years.filter(|year| (2100..=9999).contains(year)).map(|_| MAX_WAIT).next()
        };
        number(self.retry_after_ms, 0.001)
            .or_else(|| number(self.retry_after, 1.0))
            .or_else(until)
            .or_else(far_future)
            .map(|wait| wait.min(MAX_WAIT))
    }
}

/// Parses the error body of another trunkline.
fn gateway_failure(error: &Value) -> Option<Failure> {
    if error.get("type")? != "cli_error" {
        return None;
    }
    let category = serde_json::from_value(error.get("code")?.clone()).ok()?;
    let text = |name: &str| error.get(name).and_then(Value::as_str).and_then(bounded);
    let wait = error.get("retry_after_ms").and_then(Value::as_u64).map(Duration::from_millis);
    // Its `message` has a prefix before the reason, which our own error would add a second time.
    let reason = || text("message").map(|message| message.trim_start_matches("CLI failed: ").to_owned());
    let failure = Failure::new(category, text("detail").or_else(reason)?).retry_after(wait);
    Some(Failure { hint: text("hint"), ..failure })
}

/// Formats a validation error of a web framework: `[{"loc": ["body", "top_p"], "msg": "…"}]`.
fn validation(detail: &Value) -> Option<String> {
    let first = detail.as_array()?.first()?;
    let message = first.get("msg")?.as_str()?;
    let place: Vec<String> = first.get("loc").and_then(Value::as_array).into_iter().flatten().map(place_name).collect();
    Some(if place.is_empty() { message.to_owned() } else { format!("{}: {message}", place.join(".")) })
}

fn place_name(place: &Value) -> String {
    place.as_str().map_or_else(|| place.to_string(), str::to_owned)
}

/// Summarizes a text that is not JSON: its first line, or the title of an HTML page.
pub(super) fn summarize(text: &str) -> Option<String> {
    let text = ansi::strip(text);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    if !text.starts_with('<') {
        return text.lines().next().and_then(bounded);
    }
    let lower = text.to_ascii_lowercase();
    let between = |open: &str, close: &str| {
        let start = lower.find(open)?;
        let start = start + lower[start..].find('>')? + 1;
        let words: Vec<&str> = text[start..start + lower[start..].find(close)?].split_whitespace().collect();
        bounded(&words.join(" "))
    };
    between("<title", "</title").or_else(|| between("<h1", "</h1")).or_else(|| Some("an HTML page".to_owned()))
}

/// Strips escapes and surrounding whitespace and truncates to [`MAX_MESSAGE_CHARS`]. Returns `None` if nothing is left.
fn bounded(text: &str) -> Option<String> {
    let plain = ansi::strip(text);
    let plain = plain.trim();
    // The body may be binary, for example compressed: control characters must not reach a terminal.
    let mut characters = plain.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c });
    let mut kept: String = characters.by_ref().take(MAX_MESSAGE_CHARS - 1).collect();
    match (characters.next(), characters.next()) {
        (None, _) => {}
        (Some(last), None) => kept.push(last),
        (Some(_), Some(_)) => kept.push('…'),
    }
    (!kept.is_empty()).then_some(kept)
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
