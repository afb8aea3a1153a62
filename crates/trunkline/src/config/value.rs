//! Values as people write them: `"120s"`, `"2m"`, `90`.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};

/// A length of time: a number is seconds, a string has a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// Reads `500ms`, `120s`, `2m`, `1h`, `1.5h`.
pub(crate) fn parse_span(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let factor = match text[unit..].trim() {
        "ms" => 0.001,
        "" | "s" | "sec" | "seconds" => 1.0,
        "m" | "min" | "minutes" => 60.0,
        "h" | "hours" => 3600.0,
        _ => return None,
    };
    let number: f64 = text[..unit].trim().parse().ok()?;
    Duration::try_from_secs_f64(number * factor).ok().filter(|span| !span.is_zero())
}

impl<'de> serde::Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpanVisitor)
    }
}

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as \"120s\", \"2m\" or a number of seconds")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        parse_span(text)
            .map(Span)
            .ok_or_else(|| E::custom(format!("{text:?} is not a time: write 500ms, 120s, 2m or 1h")))
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Span, E> {
        self.visit_str(&seconds.to_string())
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Span, E> {
        self.visit_str(&seconds.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, millis) in [
            ("120s", Some(120_000)),
            ("2m", Some(120_000)),
            ("500ms", Some(500)),
            ("1.5h", Some(5_400_000)),
            ("90", Some(90_000)),
            ("0s", None),
            ("-1s", None),
            ("5 parsecs", None),
            ("", None),
        ] {
            assert_eq!(parse_span(text).map(|span| span.as_millis()), millis, "{text}");
        }
    }
}
