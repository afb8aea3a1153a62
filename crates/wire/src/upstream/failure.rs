//! An answer that is an error becomes a [`Failure`]: the upstream's own words, what they mean, and how long to wait.
//!
//! What an error means is taken from its names (`code`, `type`) first, then from its status, and from its message only
//! where that says more than the status: a message quotes what it likes.

use std::time::Duration;

use serde_json::Value;
use trunkline_core::ansi;
use trunkline_core::failure::{Category, Failure, Rule, classify, retry_after};

/// The most of an upstream's words that a failure carries, in characters.
const MAX_MESSAGE: usize = 4000;

/// The most of an error inside a stream that is read: as a tree it is many times its size.
const MAX_ERROR: usize = 64 * 1024;

/// The wait after a rate limit that names none.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

const LONGEST_WAIT: Duration = Duration::from_hours(30 * 24);

/// Names that mean something where no status says it.
const NAMES: [(&str, Category); 5] = [
    ("server_error", Category::Server),
    ("internal_error", Category::Server),
    ("api_error", Category::Server),
    ("authentication_error", Category::Authentication),
    ("permission_error", Category::Authentication),
];

/// The headers of an answer that say when to come back, and the time it is here, in seconds since 1970.
#[derive(Debug, Clone, Copy, Default)]
pub struct Headers<'a> {
    pub retry_after: Option<&'a str>,
    pub retry_after_ms: Option<&'a str>,
    /// The time it is there: a date to wait for is the upstream's own.
    pub date: Option<&'a str>,
    pub now: i64,
}

/// What an answer with an error's status means.
#[must_use]
pub fn failure(status: u16, headers: &Headers<'_>, body: &[u8], rules: &[Rule]) -> Failure {
    let text = String::from_utf8_lossy(body);
    let said = Said::read(&text);
    if let Some(failure) = &said.ours {
        return failure.clone();
    }
    let failure = said.failure(Some(status), rules);
    let wait = headers.wait().or(failure.retry_after);
    match status {
        300..400 => {
            let message = format!("the upstream redirects (status {status}); redirects are not followed");
            Failure::new(Category::Configuration, message).hint("set base_url to where it redirects to")
        }
        _ => failure.retry_after(wait),
    }
}

/// What an error inside an answer means; `json` is the value of its `error`.
pub(super) fn in_band(json: &str, rules: &[Rule]) -> Failure {
    let said = match serde_json::from_str::<Value>(json) {
        Ok(error) if json.len() <= MAX_ERROR => Said::of(&error),
        Ok(_) | Err(_) => Said { message: prose(json), ..Said::default() },
    };
    said.ours.clone().unwrap_or_else(|| said.failure(said.status, rules))
}

/// An error in the upstream's words.
#[derive(Debug, Default)]
struct Said {
    message: Option<String>,
    /// `code` and `type`, where they are names.
    names: String,
    /// A `code` or `status` that is a number.
    status: Option<u16>,
    /// The error of another gateway like this one, which has classified it already.
    ours: Option<Failure>,
}

impl Said {
    fn read(body: &str) -> Self {
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
                let said = error.map(Self::of).unwrap_or_default();
                // Some put the words beside the error, not inside.
                if said.message.is_some() { said } else { Self { names: said.names, ..Self::of(&value) } }
            }
            None => Self { message: prose(body), ..Self::default() },
        }
    }

    fn of(error: &Value) -> Self {
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
        // OpenAI's word for whatever is the client's fault says less than any status.
        let named = |name: &&str| *name != "invalid_request_error" && name.parse::<u16>().is_err();
        let names: Vec<&str> =
            ["code", "type", "status"].into_iter().filter_map(|name| text(name).filter(named)).collect();
        let message = ["message", "msg", "detail", "error_description", "error"].into_iter().find_map(text);
        let message = message.map(str::to_owned).or_else(|| validation(error.get("detail")?));
        // What the service behind a proxy said, where the proxy only says that it failed.
        let behind = error.pointer("/metadata/raw").and_then(Value::as_str).map(|raw| format!(": {raw}"));
        let message = message.map(|message| message + &behind.unwrap_or_default());
        Self { message: message.as_deref().and_then(bounded), names: names.join(" "), status, ours: ours(error) }
    }

    fn failure(&self, status: Option<u16>, rules: &[Rule]) -> Failure {
        let silent = || match status {
            Some(status) => format!("the upstream answered with status {status}"),
            None => "the upstream reported an error without words".to_owned(),
        };
        let message = self.message.clone().unwrap_or_else(silent);
        let category = self.category(status, &message, rules);
        let wait = retry_after(&message).or((category == Category::RateLimit).then_some(DEFAULT_WAIT));
        Failure::new(category, message).retry_after(wait)
    }

    fn category(&self, status: Option<u16>, message: &str, rules: &[Rule]) -> Category {
        let said_status = status.map(|status| format!("status {status}")).unwrap_or_default();
        let all = format!("{said_status}\n{}\n{message}", self.names);
        let ruled = classify(&all, rules);
        if ruled != classify(&all, &[]) {
            return ruled;
        }
        let (named, worded) = (classify(&self.names, &[]), classify(message, &[]));
        let by_status = match (classify(&said_status, &[]), status) {
            (Category::Unknown, Some(400..500)) => Category::Validation,
            (Category::Unknown, Some(500..)) => Category::Server,
            (Category::Unknown, None) => {
                NAMES.iter().find(|(name, _)| self.names.contains(name)).map_or(Category::Unknown, |(_, is)| *is)
            }
            (category, _) => category,
        };
        match (named, by_status, worded) {
            (Category::Unknown | Category::RateLimit, Category::RateLimit, Category::Quota) => Category::Quota,
            (Category::Unknown, Category::RateLimit, _) => Category::RateLimit,
            (Category::Unknown, Category::Server | Category::Unknown, worded) if worded != Category::Unknown => worded,
            (Category::Unknown, _, Category::Quota | Category::RateLimit | Category::Authentication) => worded,
            (Category::Unknown, by_status, _) => by_status,
            (named, _, _) => named,
        }
    }
}

impl Headers<'_> {
    fn wait(&self) -> Option<Duration> {
        let number = |text: Option<&str>, unit: f64| {
            let seconds =
                text?.trim().parse::<f64>().ok().filter(|seconds| *seconds >= 0.0 && seconds.is_finite())? * unit;
            // More than a duration can hold is a long time, not none.
            Some(Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_WAIT))
        };
        let until = || {
            let seconds = |date: &str| Some(jiff::fmt::rfc2822::parse(date.trim()).ok()?.timestamp().as_second());
            let now = self.date.and_then(seconds).unwrap_or(self.now);
            // A moment that has passed is a wait of nothing.
            Some(Duration::from_secs(u64::try_from(seconds(self.retry_after?)?.saturating_sub(now)).unwrap_or(0)))
        };
        // A year that no clock of ours reaches.
        let for_ever = || {
            let years = self.retry_after?.split_whitespace().filter_map(|word| word.parse::<u32>().ok());
            years.filter(|year| (2100..=9999).contains(year)).map(|_| LONGEST_WAIT).next()
        };
        number(self.retry_after_ms, 0.001)
            .or_else(|| number(self.retry_after, 1.0))
            .or_else(until)
            .or_else(for_ever)
            .map(|wait| wait.min(LONGEST_WAIT))
    }
}

/// The error body of a gateway like this one.
fn ours(error: &Value) -> Option<Failure> {
    if error.get("type")? != "cli_error" {
        return None;
    }
    let category = serde_json::from_value(error.get("code")?.clone()).ok()?;
    let text = |name: &str| error.get(name).and_then(Value::as_str).and_then(bounded);
    let wait = error.get("retry_after_ms").and_then(Value::as_u64).map(Duration::from_millis);
    // Its `message` repeats the reason behind a prefix, which would be added once more here.
    let reason = || text("message").map(|message| message.trim_start_matches("CLI failed: ").to_owned());
    let failure = Failure::new(category, text("detail").or_else(reason)?).retry_after(wait);
    Some(Failure { hint: text("hint"), ..failure })
}

/// `[{"loc": ["body", "top_p"], "msg": "…"}]`: what frameworks say of a request that does not fit.
fn validation(detail: &Value) -> Option<String> {
    let first = detail.as_array()?.first()?;
    let message = first.get("msg")?.as_str()?;
    let place: Vec<String> = first.get("loc").and_then(Value::as_array).into_iter().flatten().map(named).collect();
    Some(if place.is_empty() { message.to_owned() } else { format!("{}: {message}", place.join(".")) })
}

fn named(place: &Value) -> String {
    place.as_str().map_or_else(|| place.to_string(), str::to_owned)
}

/// What a text that is no JSON has to say: its first line, and of a page its title.
pub(super) fn prose(text: &str) -> Option<String> {
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

/// Without escapes and blank ends, at most [`MAX_MESSAGE`] characters; none if nothing is left.
fn bounded(text: &str) -> Option<String> {
    let plain = ansi::strip(text);
    let plain = plain.trim();
    // A body that is no text at all, compressed perhaps, must not reach a terminal.
    let mut characters = plain.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c });
    let mut kept: String = characters.by_ref().take(MAX_MESSAGE - 1).collect();
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
