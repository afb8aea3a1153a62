//! What others wrote, made fit for a terminal: no escape sequence and no control character gets through, nor what turns
//! the order of letters or has no width, so that neither a model nor a tool can move the cursor, rename the window or hide
//! what it did.

use trunkline_core::ansi::Ansi;

/// A filter that can be fed in pieces.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    ansi: Ansi,
}

impl Plain {
    /// This piece, with nothing but text, tabs and line ends in it.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut plain = self.ansi.push(text);
        plain.retain(is_shown);
        plain
    }
}

/// Whether a character only shows itself, or is a tab or a line end.
#[must_use]
pub(crate) fn is_shown(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        // Writing directions: with them, a name or a command reads as another.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        // No width, and no part of what other characters look like, as joiners are.
        '\u{200b}' | '\u{2060}' | '\u{feff}' => false,
        // Some terminals take the controls above 0x80 for escapes, also in UTF-8.
        c => !c.is_control(),
    }
}

/// `text` as it may be shown.
#[must_use]
pub(crate) fn plain(text: &str) -> String {
    Plain::default().push(text)
}

/// The first line of `text` that says something, as it may be shown, and not too long.
#[must_use]
pub(crate) fn first_line(text: &str, longest: usize) -> String {
    let text = plain(text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    shortened(line, longest)
}

/// At most `longest` characters of `text`; three dots stand for the rest.
#[must_use]
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    let kept: String = text.chars().take(longest.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_text_tabs_and_line_ends_get_through() {
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
    fn a_first_line_is_short_and_says_something() {
        for (text, longest, line) in
            [("", 9, ""), ("\n\n  no such file \nmore", 20, "no such file"), ("abcdef", 4, "abc…")]
        {
            assert_eq!(first_line(text, longest), line);
        }
    }

    proptest! {
        #[test]
        fn nothing_that_controls_a_terminal_gets_through(text in "(?s).{0,60}", cut in 0usize..60) {
            let cut = text.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(text.len());
            let mut filter = Plain::default();
            let shown = filter.push(&text[..cut]) + &filter.push(&text[cut..]);
            prop_assert!(shown.chars().all(|c| is_shown(c) && (!c.is_control() || c == '\n' || c == '\t')), "{shown:?}");
        }
    }
}
