//! Rules for the members of an object: required or optional, and their type.

use serde_json::{Map, Value};

use super::finding::ProtocolFinding;

pub(super) type JsonObject = Map<String, Value>;

/// Type of a member.
#[derive(Debug, Clone, Copy)]
pub(super) enum MemberKind {
    Text,
    /// Nonempty text.
    Name,
    Count,
    Flag,
    Time,
    Nanoseconds,
    FinishReason,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum MemberNeed {
    Required,
    Optional,
}

pub(super) type MemberRule = (&'static str, MemberKind, MemberNeed);

pub(super) const RESPONSE: [MemberRule; 8] = [
    ("content", MemberKind::Text, MemberNeed::Required),
    ("tokens_used", MemberKind::Count, MemberNeed::Required),
    ("input_tokens", MemberKind::Count, MemberNeed::Optional),
    ("output_tokens", MemberKind::Count, MemberNeed::Optional),
    ("model", MemberKind::Name, MemberNeed::Required),
    ("latency", MemberKind::Nanoseconds, MemberNeed::Required),
    ("finish_reason", MemberKind::FinishReason, MemberNeed::Required),
    ("provider", MemberKind::Name, MemberNeed::Required),
];

pub(super) const CHUNK: [MemberRule; 5] = [
    ("content", MemberKind::Text, MemberNeed::Required),
    ("delta", MemberKind::Text, MemberNeed::Required),
    ("done", MemberKind::Flag, MemberNeed::Required),
    ("tokens_used", MemberKind::Count, MemberNeed::Optional),
    ("timestamp", MemberKind::Time, MemberNeed::Required),
];

/// Checks an object against rules. Does not check `error`.
pub(super) fn check(object: &JsonObject, rules: &[MemberRule]) -> Vec<ProtocolFinding> {
    let mut findings = Vec::new();
    for &(name, kind, need) in rules {
        let value = object.get(name).filter(|value| !value.is_null());
        match (value, need) {
            (Some(value), _) if kind.admits(value) => {}
            (None, MemberNeed::Optional) => {}
            (value, _) => {
                let found = value
                    .map_or_else(|| "is missing".to_owned(), |value| format!("is {}", excerpt(&value.to_string())));
                findings.push(ProtocolFinding::fail(found, kind.wording(), kind.fix()).field(name));
            }
        }
    }
    findings
}

/// Text of `error`, if there is an error: empty, null and absent all mean none.
pub(super) fn error_of(object: &JsonObject) -> Result<Option<&str>, ProtocolFinding> {
    match object.get("error") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(error)) => Ok(Some(error.as_str()).filter(|error| !error.trim().is_empty())),
        Some(other) => Err(ProtocolFinding::fail(
            format!("is {}", excerpt(&other.to_string())),
            "a text, or null, or no such member",
            "put the reason into one string; leave error out if nothing failed",
        )
        .field("error")),
    }
}

impl MemberKind {
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
            Self::Time => "an RFC 3339 time, such as \"2025-01-07T10:30:00Z\"",
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
            Self::FinishReason => "map your model's reason; \"stop\" when it ended normally",
        }
    }
}

/// Date, `T` or a space, time with seconds, and an offset. The shape is checked because jiff accepts more than that.
fn is_rfc3339(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 20
        && [(4, b"-"), (7, b"-"), (13, b":"), (16, b":")].iter().all(|&(at, sign)| bytes[at] == sign[0])
        && matches!(bytes[10], b'T' | b't' | b' ')
        && !text.contains('[');
    shaped && text.parse::<jiff::Timestamp>().is_ok()
}

/// Beginning of a text, on one line.
pub(super) fn excerpt(text: &str) -> String {
    const MAX_CHARS: usize = 160;
    let mut short: String = text.chars().take(MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    short
}
