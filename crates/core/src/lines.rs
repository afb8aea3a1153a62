//! Lines out of bytes, however the bytes are cut: bounded, and never splitting a character.

use memchr::memchr;

// Aliases for the users in other crates. TODO: rename them there.
#[doc(hidden)]
pub use self::OutputLine as Line;

/// The longest line that is kept: beyond it a line is counted, not stored.
pub const MAX_LINE: usize = 16 * 1024 * 1024;

/// Collects bytes into lines. Memory is bounded by the limit, whatever arrives.
#[derive(Debug)]
pub struct Lines {
    pending: Vec<u8>,
    /// Bytes of the present line that were left out.
    dropped: usize,
    limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputLine {
    /// Without its line break; invalid UTF-8 is replaced.
    Whole(String),
    /// Longer than the limit: its beginning, and its length.
    Overlong { head: String, bytes: usize },
}

impl Default for Lines {
    fn default() -> Self {
        Self::new(MAX_LINE)
    }
}

impl Lines {
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { pending: Vec::new(), dropped: 0, limit }
    }

    /// Takes the next bytes and hands every line they complete to `each`.
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(OutputLine)) {
        while let Some(end) = memchr(b'\n', bytes) {
            self.keep(&bytes[..end]);
            each(self.take());
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    /// Whether the present line is too long already: its end would not change that.
    #[must_use]
    pub fn overflows(&self) -> bool {
        self.dropped > 0
    }

    /// What stands after the last line break, if anything.
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
            bytes.truncate(200);
            return OutputLine::Overlong { head: String::from_utf8_lossy(&bytes).into_owned(), bytes: total };
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        OutputLine::Whole(into_text(bytes))
    }
}

/// Text out of bytes that may end in the middle of a character: the rest waits for the next call.
#[derive(Debug, Default)]
pub struct TextCarry {
    rest: Vec<u8>,
}

impl TextCarry {
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let split = self.rest.len() - unfinished(&self.rest);
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

/// How many bytes at the end are the beginning of a character whose rest has not come yet.
fn unfinished(bytes: &[u8]) -> usize {
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
    fn breaks_crlf_and_the_last_line() {
        let whole = |text: &str| OutputLine::Whole(text.to_owned());
        assert_eq!(split(100, &[b"a\r\n\nb"]), [whole("a"), whole(""), whole("b")]);
        assert_eq!(split(100, &[b""]), []);
        assert_eq!(split(100, &[b"x\xffy\n"]), [whole("x\u{fffd}y")]);
    }

    #[test]
    fn a_line_over_the_limit_is_counted_not_stored() {
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
        fn the_same_lines_however_cut(text in "[a-zé日🎉\r\n]{0,60}", cuts in prop::collection::vec(0usize..240, 0..6)) {
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
        fn case_47_any_bytes_become_the_same_text(bytes in prop::collection::vec(any::<u8>(), 0..40), cut in 0usize..40) {
            let cut = cut.min(bytes.len());
            let mut carry = TextCarry::default();
            let mut joined = carry.push(&bytes[..cut]);
            joined.push_str(&carry.push(&bytes[cut..]));
            joined.push_str(&carry.finish());
            prop_assert_eq!(joined, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
