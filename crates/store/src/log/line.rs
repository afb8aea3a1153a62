//! A line of the log: `CHECKSUM RUN RECORD`.
//!
//! - `CHECKSUM`: eight hexadecimal digits, the CRC-32 (IEEE) of everything that follows the space after it, without the
//!   newline.
//! - `RUN`: the id of the run, without spaces.
//! - `RECORD`: a JSON object, which contains no newline.
//!
//! A write that was cut short leaves a line whose checksum is wrong, or that has no newline. Readers stop there, unless an
//! intact line follows: then the line was damaged later.

use std::io::{self, Write};

use serde::Serialize;

/// Digits of the checksum, and the space after them.
const CHECKSUM_BYTES: usize = 9;

/// A line whose checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) run: &'a str,
    /// JSON.
    pub(crate) record: &'a [u8],
}

impl Line<'_> {
    /// Whether the record is an event. Tells without parsing: most lines are events, and most readers skip them.
    pub(crate) fn is_event(&self) -> bool {
        self.record.starts_with(br#"{"event":"#)
    }
}

/// Appends a line to `buffer`. The id of a run is used as it is, so the caller makes sure that it has no whitespace.
pub fn append(buffer: &mut Vec<u8>, run: &str, record: &impl Serialize) {
    let start = buffer.len();
    buffer.extend_from_slice(&[b' '; CHECKSUM_BYTES]);
    buffer.extend_from_slice(run.as_bytes());
    buffer.push(b' ');
    serde_json::to_writer(&mut *buffer, record).expect("records serialize, and writes to a Vec do not fail");
    let mut checksum = crc32fast::hash(&buffer[start + CHECKSUM_BYTES..]);
    for digit in buffer[start..start + CHECKSUM_BYTES - 1].iter_mut().rev() {
        *digit = b"0123456789abcdef"[(checksum & 15) as usize];
        checksum >>= 4;
    }
    buffer.push(b'\n');
}

/// Parses a line without its newline. None if it is damaged.
pub(crate) fn parse(line: &[u8]) -> Option<Line<'_>> {
    split(line, verify(line)?)
}

/// Checks a line without its newline. Returns the index of the space behind the run. None if the line is damaged.
pub(crate) fn verify(line: &[u8]) -> Option<usize> {
    let (checksum, content) = line.split_at_checked(CHECKSUM_BYTES)?;
    let checksum = checksum.strip_suffix(b" ")?;
    // A sign is accepted by the parser, but never written.
    let checksum = std::str::from_utf8(checksum).ok().filter(|digits| !digits.starts_with('+'))?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32fast::hash(content) {
        return None;
    }
    let space = CHECKSUM_BYTES + memchr::memchr(b' ', content)?;
    split(line, space).map(|_| space)
}

/// Splits a line at the space behind the run.
pub(crate) fn split(line: &[u8], space: usize) -> Option<Line<'_>> {
    Some(Line { run: std::str::from_utf8(&line[CHECKSUM_BYTES..space]).ok()?, record: &line[space + 1..] })
}

/// Writes a line that was read.
pub(crate) fn write(to: &mut impl Write, line: &Line<'_>) -> io::Result<()> {
    let mut checksum = crc32fast::Hasher::new();
    for part in [line.run.as_bytes(), b" ", line.record] {
        checksum.update(part);
    }
    write!(to, "{:08x} {} ", checksum.finalize(), line.run)?;
    to.write_all(line.record)?;
    to.write_all(b"\n")
}

/// Whether an id can be in a line.
#[must_use]
pub fn is_run_id(run: &str) -> bool {
    !run.is_empty() && run.len() <= 128 && run.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn line_has_its_checksum_and_run_before_the_record() {
        let mut buffer = Vec::new();
        append(&mut buffer, "r1", &json!({"event": {"seq": 0}}));
        let text = std::str::from_utf8(&buffer).unwrap();
        assert_eq!(text, "f5d5a5d5 r1 {\"event\":{\"seq\":0}}\n".replace("f5d5a5d5", &text[..8]));
        let line = parse(&buffer[..buffer.len() - 1]).unwrap();
        assert_eq!((line.run, line.is_event()), ("r1", true));
        assert_eq!(u32::from_str_radix(&text[..8], 16).unwrap(), crc32fast::hash(b"r1 {\"event\":{\"seq\":0}}"));
    }

    proptest! {
        /// A line that was cut at any byte, or in which any byte has changed, is not taken for a line.
        #[test]
        fn damaged_line_is_refused(text in "[a-z \"é]{0,40}", cut in 0..1000_usize, flip in 1..256_usize) {
            let mut buffer = Vec::new();
            append(&mut buffer, "run", &json!({"text": text}));
            buffer.pop();
            prop_assert!(parse(&buffer).is_some());
            let at = cut % buffer.len();
            prop_assert!(parse(&buffer[..at]).is_none());
            let mut changed = buffer.clone();
            changed[at] ^= flip as u8;
            // A digit of the checksum may change its case without changing its value.
            let same_checksum = at < CHECKSUM_BYTES && changed.eq_ignore_ascii_case(&buffer);
            prop_assert!(same_checksum || parse(&changed).is_none());
        }
    }
}
