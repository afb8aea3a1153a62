//! Durations in arguments and files, and warnings about those without a unit.

use std::time::Duration;

use trunkline_core::limits::format_duration;
use trunkline_core::span::TimeSpan;

/// Parses a duration from an argument or a variable. A number without a unit is seconds. A number so large that a file would
/// read it as milliseconds is an error here: a command line can be corrected at once.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let span = TimeSpan::parse(text)?;
    match span.assumed_millis {
        true => Err(format!("{text} has no unit: write {text}ms or {text}s")),
        false => Ok(span.time),
    }
}

/// Warning about a duration that was written as a bare number and read as milliseconds.
pub(super) fn millis_warning(owner: &str, key: &str, written: TimeSpan) -> Option<String> {
    let time = format_duration(written.time);
    written.assumed_millis.then(|| {
        let millis = written.time.as_millis();
        format!("{owner}: {key}: {millis} has no unit and is read as milliseconds ({time}); write \"{time}\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_needs_a_unit_when_its_number_is_large() {
        assert_eq!(parse_span("90"), Ok(Duration::from_secs(90)));
        for text in ["30000", "120000"] {
            assert!(parse_span(text).is_err_and(|error| error.contains(&format!("{text}ms"))), "{text}");
        }
    }

    #[test]
    fn warns_when_a_number_is_read_as_milliseconds() {
        let warning = |text: &str| millis_warning("model m", "timeout", TimeSpan::parse(text).unwrap());
        let expected = "model m: timeout: 120000 has no unit and is read as milliseconds (2m); write \"2m\"";
        assert_eq!(warning("120000").as_deref(), Some(expected));
        assert_eq!((warning("90"), warning("120s")), (None, None));
    }
}
