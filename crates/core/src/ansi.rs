//! Removes terminal escape sequences from text: CSI, OSC, DCS and similar strings, charset selections, single escapes.
//! All of them begin with ESC. The one-character introducers (C1) are not recognised: in UTF-8 they are ordinary
//! characters.
//!
//! Crates for this purpose drop tabs and carriage returns too, which belong to an answer.

/// Filter that takes text in pieces. A sequence that is split between two pieces is still recognised.
#[derive(Debug, Clone, Default)]
pub struct Ansi {
    state: AnsiState,
    /// Characters dropped by the current string sequence. An unterminated one must not drop the rest of the output.
    dropped: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum AnsiState {
    #[default]
    Text,
    Escape,
    /// After `ESC (` and similar introducers: one more character follows.
    Intermediate,
    Csi,
    /// Inside OSC, DCS, SOS, PM or APC, which end with BEL or `ESC \`.
    String,
    StringEscape,
}

/// Longer string sequences are treated as unterminated.
const MAX_STRING_CHARS: usize = 64 * 1024;

impl Ansi {
    /// Returns this piece of text without escape sequences.
    pub fn push(&mut self, text: &str) -> String {
        if self.state == AnsiState::Text && !text.contains('\u{1b}') {
            return text.to_owned();
        }
        let mut plain = String::with_capacity(text.len());
        for c in text.chars() {
            self.step(c, &mut plain);
        }
        plain
    }

    fn step(&mut self, c: char, plain: &mut String) {
        self.state = match (self.state, c) {
            (AnsiState::Text, '\u{1b}') => AnsiState::Escape,
            (AnsiState::Text, c) => {
                plain.push(c);
                AnsiState::Text
            }
            (AnsiState::Escape, '[') => AnsiState::Csi,
            (AnsiState::Escape, ']' | 'P' | 'X' | '^' | '_') => self.begin_string(),
            (AnsiState::Escape | AnsiState::Intermediate, ' '..='/') => AnsiState::Intermediate,
            // A new sequence ends an unfinished one.
            (AnsiState::Escape | AnsiState::Intermediate | AnsiState::Csi, '\u{1b}') => AnsiState::Escape,
            (AnsiState::Escape | AnsiState::Intermediate, '0'..='~') => AnsiState::Text,
            (AnsiState::Csi, '@'..='~') => AnsiState::Text,
            (AnsiState::Csi, ' '..='?') => AnsiState::Csi,
            (AnsiState::String | AnsiState::StringEscape, '\u{7}' | '\u{9c}') | (AnsiState::StringEscape, '\\') => {
                AnsiState::Text
            }
            (AnsiState::String | AnsiState::StringEscape, '\u{1b}') => AnsiState::StringEscape,
            (AnsiState::String | AnsiState::StringEscape, c) if c == '\n' || self.dropped >= MAX_STRING_CHARS => {
                plain.push(c);
                AnsiState::Text
            }
            (AnsiState::String | AnsiState::StringEscape, _) => {
                self.dropped += 1;
                AnsiState::String
            }
            // Not an escape sequence: keep the character.
            (AnsiState::Escape | AnsiState::Intermediate | AnsiState::Csi, c) => {
                plain.push(c);
                AnsiState::Text
            }
        };
    }

    fn begin_string(&mut self) -> AnsiState {
        self.dropped = 0;
        AnsiState::String
    }
}

/// Returns `text` without terminal escape sequences.
#[must_use]
pub fn strip(text: &str) -> String {
    Ansi::default().push(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn removes_each_kind_of_escape_sequence() {
        for (text, plain) in [
            ("\u{1b}[32mgreen\u{1b}[0m", "green"),
            ("\u{1b}[2K\u{1b}[1Gline", "line"),
            ("a\u{1b}]0;title\u{7}b", "ab"),
            ("a\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\b", "alinkb"),
            ("a\u{1b}Pq#0\u{1b}\\b", "ab"),
            ("a\u{1b}(Bb", "ab"),
            ("a\u{1b}7b\u{1b}8c\u{1b}=d", "abcd"),
            ("\u{1b}[?25h\u{1b}[0m", ""),
            // In UTF-8 these are characters, mostly from a text that was decoded with the wrong charset.
            ("\u{e2}\u{80}\u{9d} said \u{9b}31m he \u{90}", "\u{e2}\u{80}\u{9d} said \u{9b}31m he \u{90}"),
            ("tab\there\r\nbell\u{7}", "tab\there\r\nbell\u{7}"),
            ("cut \u{1b}[3", "cut "),
            ("a\u{1b} \u{1b}[1mb\u{1b}[3\u{1b}[0mc", "abc"),
            ("a\u{1b}]0;never ended\nnext line", "a\nnext line"),
            ("plain [32m", "plain [32m"),
        ] {
            assert_eq!(strip(text), plain, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn case_47_text_is_the_same_when_split_anywhere(text in "[a-z\u{1b}\\[\\]();0-9m\u{7}\n\\\\é]{0,40}", cut in 0usize..40) {
            let cut = text.char_indices().map(|(i, _)| i).nth(cut).unwrap_or(text.len());
            let mut ansi = Ansi::default();
            let mut joined = ansi.push(&text[..cut]);
            joined.push_str(&ansi.push(&text[cut..]));
            prop_assert_eq!(joined, strip(&text));
        }
    }
}
