//! Splits output into lines and text. Memory is bounded, and a character that arrives in two pieces stays whole.

use memchr::memchr;

// Aliases for the users in other crates. TODO: rename them there.
#[doc(hidden)]
pub use self::OutputLine as Line;

/// Longer lines are counted but not stored.
pub const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of an overlong line that are kept.
const OVERLONG_HEAD_BYTES: usize = 200;

/// Collects bytes into lines. Memory is bounded by the limit.
#[derive(Debug)]
pub struct Lines {
    pending: Vec<u8>,
    /// Bytes of the current line that were not stored.
    dropped: usize,
    limit: usize,
}

/// Line of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputLine {
    /// The line without its line break; invalid UTF-8 is replaced.
    Whole(String),
    /// A line longer than the limit: its beginning, and its length.
    Overlong { head: String, bytes: usize },
}

impl Default for Lines {
    fn default() -> Self {
        Self::new(MAX_LINE_BYTES)
    }
}

impl Lines {
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { pending: Vec::new(), dropped: 0, limit }
    }

    /// Takes the next bytes and passes every line that they complete to `each`.
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(OutputLine)) {
        while let Some(end) = memchr(b'\n', bytes) {
            self.keep(&bytes[..end]);
            each(self.take());
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    /// Whether the current, unfinished line is already longer than the limit.
    #[must_use]
    pub fn overflows(&self) -> bool {
        self.dropped > 0
    }

    /// Returns the text after the last line break, if there is any.
    pub fn finish(&mut self) -> Option<OutputLine> {
        (!self.pending.is_empty() || self.dropped > 0).then(|| self.take())
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.limit.saturating_sub(self.pending.len());
        let kept = bytes.len().min(room);
        self.pending.extend_from_slice(&bytes[..kept]);
        self.dropped += bytes.len() - kept;
    }

    fn take(&mut self) -> OutputLine {
        let mut bytes = std::mem::take(&mut self.pending);
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let total = bytes.len() + dropped;
            bytes.truncate(OVERLONG_HEAD_BYTES);
            return OutputLine::Overlong { head: String::from_utf8_lossy(&bytes).into_owned(), bytes: total };
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        OutputLine::Whole(into_text(bytes))
    }
}

/// Decodes bytes that may end in the middle of a character. The incomplete character is kept for the next call.
#[derive(Debug, Default)]
pub struct TextCarry {
    rest: Vec<u8>,
}

impl TextCarry {
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let split = self.rest.len() - incomplete_suffix(&self.rest);
        let rest = self.rest.split_off(split);
        into_text(std::mem::replace(&mut self.rest, rest))
    }

    pub fn finish(&mut self) -> String {
        into_text(std::mem::take(&mut self.rest))
    }
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Number of bytes at the end that begin a character whose rest has not arrived yet.
fn incomplete_suffix(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    for (back, &byte) in tail.iter().rev().enumerate() {
        let length = match byte {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => return 0,
        };
        return if length > back + 1 { back + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(limit: usize, pieces: &[&[u8]]) -> Vec<OutputLine> {
        let mut lines = Lines::new(limit);
        let mut out = Vec::new();
        for piece in pieces {
            lines.push(piece, |line| out.push(line));
        }
        out.extend(lines.finish());
        out
    }

    #[test]
    fn splits_at_lf_and_crlf_and_keeps_the_last_line() {
        let whole = |text: &str| OutputLine::Whole(text.to_owned());
        assert_eq!(split(100, &[b"a\r\n\nb"]), [whole("a"), whole(""), whole("b")]);
        assert_eq!(split(100, &[b""]), []);
        assert_eq!(split(100, &[b"x\xffy\n"]), [whole("x\u{fffd}y")]);
    }

    #[test]
    fn counts_but_does_not_store_a_line_when_it_exceeds_the_limit() {
        let mut lines = Lines::new(10);
        let mut out = Vec::new();
        for _ in 0..1000 {
            lines.push(b"0123456789", |line| out.push(line));
            assert!(lines.pending.len() <= 10);
        }
        lines.push(b"\nnext\n", |line| out.push(line));
        assert_eq!(
            out,
            [OutputLine::Overlong { head: "0123456789".into(), bytes: 10_000 }, OutputLine::Whole("next".into())]
        );
    }

    proptest! {
        #[test]
        fn lines_are_the_same_when_split_anywhere(text in "[a-zé日🎉\r\n]{0,60}", cuts in prop::collection::vec(0usize..240, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(split(1000, &pieces), split(1000, &[bytes]));

            let mut carry = TextCarry::default();
            let mut joined: String = pieces.iter().map(|piece| carry.push(piece)).collect();
            joined.push_str(&carry.finish());
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn case_47_text_of_any_bytes_is_the_same_when_split_anywhere(bytes in prop::collection::vec(any::<u8>(), 0..40), cut in 0usize..40) {
            let cut = cut.min(bytes.len());
            let mut carry = TextCarry::default();
            let mut joined = carry.push(&bytes[..cut]);
            joined.push_str(&carry.push(&bytes[cut..]));
            joined.push_str(&carry.finish());
            prop_assert_eq!(joined, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
