//! Makes untrusted text safe for a terminal. Removes escape sequences, control characters, bidirectional controls and
//! zero-width characters, so that neither a model nor a tool can move the cursor, rename the window or hide what it did.

use trunkline_core::ansi::Ansi;

/// A filter for text that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct PlainFilter {
    ansi: Ansi,
}

impl PlainFilter {
    /// Returns the piece with only text, tabs and line breaks.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut plain = self.ansi.push(text);
        plain.retain(is_shown);
        plain
    }
}

/// Whether a character is printable, a tab or a line break.
#[must_use]
pub(crate) fn is_shown(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        // Bidirectional controls: they can make a name or a command look like another.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        // Zero-width characters that, unlike joiners, do not affect how other characters look.
        '\u{200b}' | '\u{2060}' | '\u{feff}' => false,
        // Some terminals interpret the controls above 0x80 as escapes, even in UTF-8.
        c => !c.is_control(),
    }
}

/// `text` with only safe characters.
#[must_use]
pub(crate) fn plain(text: &str) -> String {
    PlainFilter::default().push(text)
}

/// The first line of `text` that is not blank, with only safe characters and at most `max_chars` of them.
#[must_use]
pub(crate) fn first_line(text: &str, max_chars: usize) -> String {
    let text = plain(text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    shortened(line, max_chars)
}

/// At most `max_chars` characters of `text`, with an ellipsis if it was cut.
#[must_use]
pub(crate) fn shortened(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn removes_all_but_text_tabs_and_line_breaks() {
        for (text, shown) in [
            ("a\tb\nc", "a\tb\nc"),
            ("\u{1b}]0;owned\u{7}title", "title"),
            ("one\r\ntwo\rthree", "one\ntwothree"),
            ("\u{1b}[2J\u{1b}[H\u{9b}31mred\u{8}\u{8}\u{7f}", "31mred"),
            ("naïve 日本語 🦀 👨\u{200d}👩", "naïve 日本語 🦀 👨\u{200d}👩"),
            ("\u{202e}gnp.exe\u{202c} \u{2066}a\u{2069}\u{200e}\u{200f}\u{61c}", "gnp.exe a"),
            ("\u{feff}r\u{200b}m\u{2060}", "rm"),
        ] {
            assert_eq!(plain(text), shown, "{text:?}");
        }
    }

    #[test]
    fn first_line_is_short_and_not_blank() {
        for (text, max_chars, line) in
            [("", 9, ""), ("\n\n  no such file \nmore", 20, "no such file"), ("abcdef", 4, "abc…")]
        {
            assert_eq!(first_line(text, max_chars), line);
        }
    }

    proptest! {
        #[test]
        fn removes_everything_that_controls_a_terminal(text in "(?s).{0,60}", cut in 0usize..60) {
            let cut = text.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(text.len());
            let mut filter = PlainFilter::default();
            let shown = filter.push(&text[..cut]) + &filter.push(&text[cut..]);
            prop_assert!(shown.chars().all(|c| is_shown(c) && (!c.is_control() || c == '\n' || c == '\t')), "{shown:?}");
        }
    }
}
