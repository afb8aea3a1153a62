//! Output of a command in bounded memory: its beginning and its end.

use std::collections::VecDeque;

use trunkline_core::ansi;

use super::cut;

/// Bytes that are kept of the beginning, and as many of the end.
const MAX_PART_BYTES: usize = 32 * 1024;

/// Beginning and end of a command's output.
#[derive(Debug, Default)]
pub(super) struct OutputBuffer {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes dropped between the two.
    dropped: u64,
}

impl OutputBuffer {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        let (head, rest) = chunk.split_at(chunk.len().min(MAX_PART_BYTES - self.head.len()));
        self.head.extend(head);
        let surplus = (self.tail.len() + rest.len()).saturating_sub(MAX_PART_BYTES);
        self.dropped += surplus as u64;
        // The part of a large chunk that would be dropped again at once is skipped.
        let skipped = surplus.saturating_sub(self.tail.len());
        self.tail.drain(..surplus - skipped);
        self.tail.extend(&rest[skipped..]);
    }

    /// The whole output, or its two ends with a note between them, as text without terminal escapes.
    pub(super) fn into_text(self) -> String {
        let (mut head, tail) = (self.head, Vec::from(self.tail));
        if self.dropped == 0 {
            head.extend(tail);
            return text(&head);
        }
        let (first, last) = (cut::head(&head), cut::tail(&tail));
        let dropped = self.dropped + (head.len() - first.len() + tail.len() - last.len()) as u64;
        let mut output = text(first);
        if !output.ends_with('\n') {
            output.push('\n');
        }
        output.push_str(&format!(
            "[{dropped} bytes left out here; to see them, redirect the output to a file and read parts of it]\n"
        ));
        output.push_str(&text(last));
        output
    }
}

fn text(bytes: &[u8]) -> String {
    // Some services refuse NUL characters.
    ansi::strip(&String::from_utf8_lossy(bytes)).replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(chunks: &[&[u8]]) -> String {
        let mut buffer = OutputBuffer::default();
        for chunk in chunks {
            buffer.push(chunk);
            assert!(buffer.head.len() + buffer.tail.len() <= 2 * MAX_PART_BYTES);
        }
        buffer.into_text()
    }

    #[test]
    fn keeps_both_ends_in_whole_lines_when_output_is_too_long() {
        let lines: Vec<u8> = (0..20_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let output = shown(&[&lines]);
        let (first, rest) = output.split_once("\n[").unwrap();
        let (note, last) = rest.split_once("]\n").unwrap();
        assert!(first.starts_with("line 0\nline 1\n") && last.ends_with("line 19999\n"), "{output}");
        for part in [first, last] {
            assert!(part.lines().all(|line| line.strip_prefix("line ").unwrap().parse::<u32>().is_ok()), "{part}");
            assert!(part.len() <= MAX_PART_BYTES && part.len() > MAX_PART_BYTES - 20);
        }
        let left_out = lines.len() - (first.len() + 1) - last.len();
        let expected =
            format!("{left_out} bytes left out here; to see them, redirect the output to a file and read parts of it");
        assert_eq!(note, expected);
    }

    #[test]
    fn removes_escapes_and_replaces_invalid_bytes() {
        assert_eq!(shown(&[b"\x1b[3", b"1mred\x1b[0m \xff \xe2\x82", b"\xac\n"]), "red \u{fffd} €\n");
    }

    proptest! {
        /// The text does not depend on the chunks, and is complete as long as it fits.
        #[test]
        fn text_does_not_depend_on_chunks(text in "[a-z\n]{0,200}", times in 1usize..1000, at in 0usize..200_000) {
            let whole = text.repeat(times).into_bytes();
            let (one, two) = whole.split_at(at.min(whole.len()));
            let output = shown(&[one, two]);
            prop_assert_eq!(&output, &shown(&[&whole]));
            if whole.len() <= 2 * MAX_PART_BYTES {
                prop_assert_eq!(output.into_bytes(), whole);
            }
        }
    }
}
