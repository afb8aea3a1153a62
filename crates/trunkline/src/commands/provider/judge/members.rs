//! The members of an object: are they there, and are they what they should be.

use serde_json::{Map, Value};

use super::finding::Finding;

pub(super) type Object = Map<String, Value>;

/// What a member may hold.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    /// Text that is not empty.
    Name,
    Count,
    Flag,
    Time,
    Nanoseconds,
    FinishReason,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    Required,
    Optional,
}

pub(super) type Rule = (&'static str, Kind, Need);

pub(super) const RESPONSE: [Rule; 8] = [
    ("content", Kind::Text, Need::Required),
    ("tokens_used", Kind::Count, Need::Required),
    ("input_tokens", Kind::Count, Need::Optional),
    ("output_tokens", Kind::Count, Need::Optional),
    ("model", Kind::Name, Need::Required),
    ("latency", Kind::Nanoseconds, Need::Required),
    ("finish_reason", Kind::FinishReason, Need::Required),
    ("provider", Kind::Name, Need::Required),
];

pub(super) const CHUNK: [Rule; 5] = [
    ("content", Kind::Text, Need::Required),
    ("delta", Kind::Text, Need::Required),
    ("done", Kind::Flag, Need::Required),
    ("tokens_used", Kind::Count, Need::Optional),
    ("timestamp", Kind::Time, Need::Required),
];

/// The findings about one object, each with its field. `error` is not looked at here.
pub(super) fn check(object: &Object, rules: &[Rule]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for &(name, kind, need) in rules {
        let value = object.get(name).filter(|value| !value.is_null());
        match (value, need) {
            (Some(value), _) if kind.admits(value) => {}
            (None, Need::Optional) => {}
            (value, _) => {
                let found = value
                    .map_or_else(|| "is missing".to_owned(), |value| format!("is {}", excerpt(&value.to_string())));
                findings.push(Finding::fail(found, kind.wording(), kind.fix()).field(name));
            }
        }
    }
    findings
}

/// What `error` says, when it says something: empty, null and absent are all "no error".
pub(super) fn error_of(object: &Object) -> Result<Option<&str>, Finding> {
    match object.get("error") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(error)) => Ok(Some(error.as_str()).filter(|error| !error.trim().is_empty())),
        Some(other) => Err(Finding::fail(
            format!("is {}", excerpt(&other.to_string())),
            "a text, or null, or no such member",
            "put what went wrong into one string; leave error out when all is well",
        )
        .field("error")),
    }
}

impl Kind {
    fn admits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Name => value.as_str().is_some_and(|name| !name.trim().is_empty()),
            Self::Count | Self::Nanoseconds => value.is_u64(),
            Self::Flag => value.is_boolean(),
            Self::Time => value.as_str().is_some_and(is_rfc3339),
            Self::FinishReason => matches!(value.as_str(), Some("stop" | "length" | "tool_use")),
        }
    }

    const fn wording(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Name => "a string that is not empty",
            Self::Count => "a whole number, not negative",
            Self::Flag => "true or false",
            Self::Time => "a time as RFC 3339 has it, such as \"2025-01-07T10:30:00Z\"",
            Self::Nanoseconds => "a whole number of nanoseconds",
            Self::FinishReason => "\"stop\", \"length\" or \"tool_use\"",
        }
    }

    const fn fix(self) -> &'static str {
        match self {
            Self::Text => "print the member always, \"\" when there is no text",
            Self::Name => "print the member always; a fixed name will do",
            Self::Count => "print a number without quotes or decimals; 0 when you do not know",
            Self::Flag => "print the JSON value true or false, without quotes",
            Self::Time => "print the current time with date, time and offset, for example: date -u +%Y-%m-%dT%H:%M:%SZ",
            Self::Nanoseconds => {
                "measure the time and multiply: 1 ms is 1000000, 1 s is 1000000000; no quotes, no decimals"
            }
            Self::FinishReason => "translate your model's word; \"stop\" when it ended by itself",
        }
    }
}

/// Date, `T` or a space, time with seconds, and an offset. jiff reads more than that, hence the look at the shape.
fn is_rfc3339(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 20
        && [(4, b"-"), (7, b"-"), (13, b":"), (16, b":")].iter().all(|&(at, sign)| bytes[at] == sign[0])
        && matches!(bytes[10], b'T' | b't' | b' ')
        && !text.contains('[');
    shaped && text.parse::<jiff::Timestamp>().is_ok()
}

/// Enough of a text to recognise it.
pub(super) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 160;
    let mut short: String = text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}
