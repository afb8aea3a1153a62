//! Plain text: the whole output is the answer, and it is shown while it arrives.

use crate::lines::TextCarry;
use crate::parse::transcript::{MAX_ANSWER_BYTES, OutputTranscript};
use crate::vocabulary::Normalize;

/// Parser of plain text.
#[derive(Debug)]
pub(super) struct TextParser {
    normalize: Normalize,
    carry: TextCarry,
    ansi: crate::ansi::Ansi,
    output: String,
    /// Trailing blanks. They are shown only if more text follows, so that the shown text is the trimmed answer.
    blanks: String,
}

impl TextParser {
    pub(super) fn new(normalize: Normalize) -> Self {
        Self {
            normalize,
            carry: TextCarry::default(),
            ansi: crate::ansi::Ansi::default(),
            output: String::new(),
            blanks: String::new(),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8], transcript: &mut OutputTranscript) {
        let text = self.carry.push(bytes);
        self.take(&text, transcript);
    }

    /// Returns the whole output. The transcript has the part that was shown; the verdict decides whether it is an answer.
    pub(super) fn finish(&mut self, transcript: &mut OutputTranscript) -> String {
        let text = self.carry.finish();
        self.take(&text, transcript);
        normalized(std::mem::take(&mut self.output), self.normalize)
    }

    fn take(&mut self, text: &str, transcript: &mut OutputTranscript) {
        let plain = self.ansi.push(text);
        if self.output.len() + plain.len() > MAX_ANSWER_BYTES {
            transcript.overflow = true;
            return;
        }
        self.output.push_str(&plain);
        if self.normalize == Normalize::LastBlock {
            return;
        }
        let body = plain.trim_end();
        if body.is_empty() {
            self.blanks.push_str(&plain);
            return;
        }
        let shown = std::mem::take(&mut self.blanks) + body;
        if transcript.mark() == 0 {
            transcript.text(shown.trim_start_matches(['\n', '\r']));
        } else {
            transcript.text(&shown);
        }
        self.blanks = plain[body.len()..].to_owned();
    }
}

/// Returns the output as an answer: without surrounding blank lines, or only its last block.
pub(super) fn normalized(mut output: String, normalize: Normalize) -> String {
    match normalize {
        Normalize::None => {
            // In place, because the output may be very long.
            output.truncate(output.trim_end().len());
            let blank = output.len() - output.trim_start_matches(['\n', '\r']).len();
            output.drain(..blank);
            output
        }
        Normalize::LastBlock => last_block(&output),
    }
}

/// Returns the last run of lines that are not blank.
fn last_block(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let Some(end) = lines.iter().rposition(|line| !line.trim().is_empty()) else { return String::new() };
    let start = lines[..end].iter().rposition(|line| line.trim().is_empty()).map_or(0, |blank| blank + 1);
    lines[start..=end].join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_blanks_before_the_first_word_when_they_arrive_in_pieces() {
        for pieces in [&["\t\u{e}"][..], &["\t", "\u{e}"], &["\n\n", "\t", "\u{e}", "\n"]] {
            let mut transcript = OutputTranscript::default();
            let mut text = TextParser::new(Normalize::None);
            pieces.iter().for_each(|piece| text.push(piece.as_bytes(), &mut transcript));
            assert_eq!(text.finish(&mut transcript), "\t\u{e}");
            let shown = transcript.events.iter().map(|event| format!("{event:?}")).collect::<String>();
            assert_eq!(shown, r#"Text { delta: "\t\u{e}" }"#, "{pieces:?}");
        }
    }

    #[test]
    fn returns_only_the_last_block_of_mixed_output() {
        for (output, block) in [
            ("[log] start\n[tool] ls\n\nThe answer\nin two lines\n\n", "The answer\nin two lines"),
            ("one", "one"),
            ("", ""),
            ("\n \n", ""),
            ("a\r\n\r\nb\r\n", "b"),
            ("a\n   \n  b  ", "b"),
        ] {
            assert_eq!(last_block(output), block, "{output:?}");
        }
    }
}
