//! What a command prints, in bounded memory: its beginning and its end.

use std::collections::VecDeque;

use trunkline_core::ansi;

use super::cut;

/// How much is kept of the beginning, and as much of the end.
const KEPT: usize = 32 * 1024;

#[derive(Debug, Default)]
pub(super) struct Transcript {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// How much came between the two.
    lost: u64,
}

impl Transcript {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        let (head, rest) = chunk.split_at(chunk.len().min(KEPT - self.head.len()));
        self.head.extend(head);
        let surplus = (self.tail.len() + rest.len()).saturating_sub(KEPT);
        self.lost += surplus as u64;
        // Of a large chunk the beginning never gets into the tail.
        let passing = surplus.saturating_sub(self.tail.len());
        self.tail.drain(..surplus - passing);
        self.tail.extend(&rest[passing..]);
    }

    /// All that was printed, or its two ends with a note between them; as text, without terminal escapes.
    pub(super) fn into_text(self) -> String {
        let (mut head, tail) = (self.head, Vec::from(self.tail));
        if self.lost == 0 {
            head.extend(tail);
            return text(&head);
        }
        let (first, last) = (cut::head(&head), cut::tail(&tail));
        let lost = self.lost + (head.len() - first.len() + tail.len() - last.len()) as u64;
        let mut said = text(first);
        if !said.ends_with('\n') {
            said.push('\n');
        }
        said.push_str(&format!(
            "[{lost} bytes left out here; to see them, send the output to a file and look at parts of it]\n"
        ));
        said.push_str(&text(last));
        said
    }
}

fn text(bytes: &[u8]) -> String {
    // What no text has, some services refuse.
    ansi::strip(&String::from_utf8_lossy(bytes)).replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(chunks: &[&[u8]]) -> String {
        let mut transcript = Transcript::default();
        for chunk in chunks {
            transcript.push(chunk);
            assert!(transcript.head.len() + transcript.tail.len() <= 2 * KEPT);
        }
        transcript.into_text()
    }

    #[test]
    fn both_ends_in_whole_lines() {
        let lines: Vec<u8> = (0..20_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let said = told(&[&lines]);
        let (first, rest) = said.split_once("\n[").unwrap();
        let (note, last) = rest.split_once("]\n").unwrap();
        assert!(first.starts_with("line 0\nline 1\n") && last.ends_with("line 19999\n"), "{said}");
        for part in [first, last] {
            assert!(part.lines().all(|line| line.strip_prefix("line ").unwrap().parse::<u32>().is_ok()), "{part}");
            assert!(part.len() <= KEPT && part.len() > KEPT - 20);
        }
        let left_out = lines.len() - (first.len() + 1) - last.len();
        let expected =
            format!("{left_out} bytes left out here; to see them, send the output to a file and look at parts of it");
        assert_eq!(note, expected);
    }

    #[test]
    fn escapes_and_odd_bytes() {
        assert_eq!(told(&[b"\x1b[3", b"1mred\x1b[0m \xff \xe2\x82", b"\xac\n"]), "red \u{fffd} €\n");
    }

    proptest! {
        /// However it comes, it is told the same, and nothing is missing as long as it fits.
        #[test]
        fn the_same_however_it_is_cut(text in "[a-z\n]{0,200}", times in 1usize..1000, at in 0usize..200_000) {
            let whole = text.repeat(times).into_bytes();
            let (one, two) = whole.split_at(at.min(whole.len()));
            let said = told(&[one, two]);
            prop_assert_eq!(&said, &told(&[&whole]));
            if whole.len() <= 2 * KEPT {
                prop_assert_eq!(said.into_bytes(), whole);
            }
        }
    }
}
