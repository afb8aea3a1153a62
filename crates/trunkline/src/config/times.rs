//! Times of flags and files: which of them were read in another unit than the usual.

use std::time::Duration;

use trunkline_core::limits::span;
use trunkline_core::span::Span;

/// A time of a flag or a variable. Without a unit it is seconds, and nothing is guessed: a command line can be mended at once.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let span = Span::parse(text)?;
    match span.assumed_millis {
        true => Err(format!("{text} has no unit: write {text}ms or {text}s")),
        false => Ok(span.time),
    }
}

/// The warning about a time that was written as a bare number and taken for milliseconds.
pub(super) fn assumed(owner: &str, key: &str, written: Span) -> Option<String> {
    let time = span(written.time);
    written.assumed_millis.then(|| {
        let millis = written.time.as_millis();
        format!("{owner}: {key}: {millis} has no unit and is read as milliseconds ({time}); write \"{time}\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_needs_a_unit_when_its_number_is_large() {
        assert_eq!(parse_span("90"), Ok(Duration::from_secs(90)));
        for text in ["30000", "120000"] {
            assert!(parse_span(text).is_err_and(|said| said.contains(&format!("{text}ms"))), "{text}");
        }
    }

    #[test]
    fn warns_when_a_number_is_read_as_milliseconds() {
        let told = |text: &str| assumed("model m", "timeout", Span::parse(text).unwrap());
        let expected = "model m: timeout: 120000 has no unit and is read as milliseconds (2m); write \"2m\"";
        assert_eq!(told("120000").as_deref(), Some(expected));
        assert_eq!((told("90"), told("120s")), (None, None));
    }
}
