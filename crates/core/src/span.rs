//! Durations as they are written in configuration files: `"120s"`, `"2m"`, `90`.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};

/// A bare number up to this is read as seconds.
const MAX_SECONDS: f64 = 10_000.0;

/// A bare number above this is read as milliseconds: in seconds it would be more than a day.
const MIN_MILLIS: f64 = 86_400.0;

/// Duration that was written with or without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpan {
    pub time: Duration,
    /// Written as a bare number that is too large for seconds. The caller warns about it.
    pub assumed_millis: bool,
}

impl TimeSpan {
    /// Parses `500ms`, `120s`, `2m`, `1h` or `1.5h`. A bare number is seconds up to 10000 and milliseconds above 86400. A
    /// number between the two is ambiguous and refused.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a time: write 500ms, 120s, 2m or 1h");
        let trimmed = text.trim();
        let unit = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
        let number: f64 = trimmed[..unit].trim().parse().map_err(|_| wrong())?;
        let (factor, assumed_millis) = match trimmed[unit..].trim() {
            "ms" => (0.001, false),
            "s" | "sec" | "seconds" => (1.0, false),
            "m" | "min" | "minutes" => (60.0, false),
            "h" | "hours" => (3600.0, false),
            "" if number > MIN_MILLIS => (0.001, true),
            "" if number > MAX_SECONDS => {
                return Err(format!(
                    "{number} could be seconds or milliseconds: write \"{number}s\" or \"{number}ms\""
                ));
            }
            "" => (1.0, false),
            _ => return Err(wrong()),
        };
        let time =
            Duration::try_from_secs_f64(number * factor).ok().filter(|time| !time.is_zero()).ok_or_else(wrong)?;
        Ok(Self { time, assumed_millis })
    }
}

impl<'de> serde::Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeSpanVisitor)
    }
}

struct TimeSpanVisitor;

impl Visitor<'_> for TimeSpanVisitor {
    type Value = TimeSpan;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as \"120s\", \"2m\" or a number of seconds")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<TimeSpan, E> {
        TimeSpan::parse(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<TimeSpan, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<TimeSpan, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<TimeSpan, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_times_with_and_without_a_unit() {
        for (text, millis) in [
            ("120s", Some(120_000)),
            ("2m", Some(120_000)),
            ("500ms", Some(500)),
            ("1.5h", Some(5_400_000)),
            ("90", Some(90_000)),
            ("7200", Some(7_200_000)),
            ("10000", Some(10_000_000)),
            ("100000s", Some(100_000_000)),
            ("0s", None),
            ("0", None),
            ("-1s", None),
            ("-1", None),
            ("5 parsecs", None),
            ("nan", None),
            ("", None),
        ] {
            let span = TimeSpan::parse(text);
            assert_eq!(span.as_ref().ok().map(|span| span.time.as_millis()), millis, "{text}");
            assert!(span.is_err() || !span.is_ok_and(|span| span.assumed_millis), "{text}");
        }
    }

    #[test]
    fn parses_milliseconds_when_a_bare_number_is_more_than_a_day() {
        for (text, millis) in [("120000", 120_000), ("300000", 300_000), ("86401", 86_401), ("1000000", 1_000_000)] {
            let expected = TimeSpan { time: Duration::from_millis(millis), assumed_millis: true };
            assert_eq!(TimeSpan::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refuses_a_bare_number_when_its_unit_is_ambiguous() {
        for text in ["10001", "30000", "60000", "86400"] {
            let refused = TimeSpan::parse(text).unwrap_err();
            assert!(refused.contains("seconds or milliseconds") && refused.contains(&format!("{text}ms")), "{refused}");
        }
    }
}
