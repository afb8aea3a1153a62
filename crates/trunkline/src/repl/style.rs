//! Styled text, and wrapping it to a width.

use unicode_width::UnicodeWidthChar;

use super::plain::is_shown;

/// Style of a piece of text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TextStyle {
    pub(super) bold: bool,
    pub(super) dim: bool,
    pub(super) italic: bool,
    pub(super) underlined: bool,
    pub(super) struck: bool,
    pub(super) colour: Option<Colour>,
}

/// Colours of the terminal's palette, by their SGR codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Red = 31,
    Green = 32,
    Cyan = 36,
}

impl TextStyle {
    pub(super) const DIM: Self =
        Self { dim: true, bold: false, italic: false, underlined: false, struck: false, colour: None };

    pub(super) const fn coloured(colour: Colour) -> Self {
        Self { colour: Some(colour), dim: false, ..Self::DIM }
    }

    pub(super) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    /// SGR codes; none for plain text.
    fn codes(self) -> Vec<u8> {
        let switches = [(self.bold, 1), (self.dim, 2), (self.italic, 3), (self.underlined, 4), (self.struck, 9)];
        let switches = switches.into_iter().filter_map(|(on, code)| on.then_some(code));
        switches.chain(self.colour.map(|colour| colour as u8)).collect()
    }
}

/// A piece of text with one style.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StyledSpan {
    pub(super) text: String,
    pub(super) style: TextStyle,
}

impl StyledSpan {
    pub(super) fn new(text: impl Into<String>, style: TextStyle) -> Self {
        Self { text: text.into(), style }
    }
}

/// One row of a terminal.
pub(super) type StyledLine = Vec<StyledSpan>;

/// Whether styles are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColourMode {
    Colours,
    None,
}

impl ColourMode {
    /// Text with its style. Filters control characters again, because Markdown may encode them, as in `&#27;`.
    pub(super) fn span(self, text: &str, style: TextStyle) -> String {
        let text: String = text.chars().filter(|&c| is_shown(c)).collect();
        let codes: Vec<String> = style.codes().iter().map(u8::to_string).collect();
        match self {
            Self::Colours if !codes.is_empty() && !text.is_empty() => {
                format!("\u{1b}[{}m{text}\u{1b}[0m", codes.join(";"))
            }
            Self::Colours | Self::None => text,
        }
    }

    pub(super) fn line(self, line: &[StyledSpan]) -> String {
        line.iter().map(|span| self.span(&span.text, span.style)).collect()
    }
}

/// Columns of a text.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

pub(super) fn line_width(line: &[StyledSpan]) -> usize {
    line.iter().map(|span| width(&span.text)).sum()
}

fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// The longest end of a text that fits into `columns`.
pub(super) fn last_columns(text: &str, columns: usize) -> &str {
    let mut taken = 0;
    let mut from = text.len();
    for (at, c) in text.char_indices().rev() {
        taken += char_width(c);
        if taken > columns {
            break;
        }
        from = at;
    }
    &text[from..]
}

/// Wraps text between words, to `first` columns in the first row and `rest` in the others. A longer word is cut.
pub(super) fn wrap(spans: &[StyledSpan], first: usize, rest: usize) -> Vec<StyledLine> {
    let mut rows = WrappedRows { rows: vec![Vec::new()], column: 0, first: first.max(1), rest: rest.max(1) };
    let mut word: Vec<(char, TextStyle)> = Vec::new();
    let mut space: Option<TextStyle> = None;
    for (c, style) in spans.iter().flat_map(|span| span.text.chars().map(|c| (c, span.style))) {
        match c {
            ' ' | '\n' | '\t' => {
                rows.put(&mut word, &mut space);
                if c == '\n' {
                    rows.next();
                    space = None;
                } else {
                    space = Some(style);
                }
            }
            c => word.push((c, style)),
        }
    }
    rows.put(&mut word, &mut space);
    rows.rows
}

struct WrappedRows {
    rows: Vec<StyledLine>,
    column: usize,
    first: usize,
    rest: usize,
}

impl WrappedRows {
    fn next(&mut self) {
        self.rows.push(Vec::new());
        self.column = 0;
    }

    fn room(&self) -> usize {
        if self.rows.len() == 1 { self.first } else { self.rest }
    }

    /// Adds a word after its space, or on a new row.
    fn put(&mut self, word: &mut Vec<(char, TextStyle)>, space: &mut Option<TextStyle>) {
        if word.is_empty() {
            return;
        }
        let columns: usize = word.iter().map(|(c, _)| char_width(*c)).sum();
        if let Some(style) = space.take().filter(|_| self.column > 0) {
            if self.column + 1 + columns <= self.room() {
                self.push(' ', style);
            } else {
                self.next();
            }
        }
        for (c, style) in word.drain(..) {
            if self.column > 0 && self.column + char_width(c) > self.room() {
                self.next();
            }
            self.push(c, style);
        }
    }

    fn push(&mut self, c: char, style: TextStyle) {
        self.column += char_width(c);
        let Some(row) = self.rows.last_mut() else { return };
        match row.last_mut() {
            Some(span) if span.style == style => span.text.push(c),
            _ => row.push(StyledSpan::new(c, style)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrapped(text: &str, first: usize, rest: usize) -> Vec<String> {
        let rows = wrap(&[StyledSpan::new(text, TextStyle::default())], first, rest);
        rows.iter().map(|row| ColourMode::None.line(row)).collect()
    }

    #[test]
    fn wraps_between_words_if_possible() {
        for (text, first, rest, rows) in [
            ("", 10, 10, vec![""]),
            ("one two three", 7, 20, vec!["one two", "three"]),
            ("one two three", 5, 5, vec!["one", "two", "three"]),
            ("abcdefgh ij", 3, 3, vec!["abc", "def", "gh", "ij"]),
            ("a  b\nc", 10, 10, vec!["a b", "c"]),
            ("日本語です", 4, 4, vec!["日本", "語で", "す"]),
        ] {
            assert_eq!(wrapped(text, first, rest), rows, "{text:?}");
        }
    }

    #[test]
    fn style_is_switched_on_and_off() {
        let spans = [StyledSpan::new("a ", TextStyle::default()), StyledSpan::new("b c", TextStyle::default().bold())];
        assert_eq!(ColourMode::Colours.line(&wrap(&spans, 9, 9)[0]), "a \u{1b}[1mb c\u{1b}[0m");
        assert_eq!(ColourMode::None.line(&wrap(&spans, 9, 9)[0]), "a b c");
    }

    #[test]
    fn returns_the_end_that_fits() {
        for (text, columns, end) in [("abc", 2, "bc"), ("abc", 9, "abc"), ("a語", 1, ""), ("", 3, "")] {
            assert_eq!(last_columns(text, columns), end);
        }
    }

    proptest! {
        #[test]
        fn no_row_is_too_wide_and_no_word_is_lost(text in "[a-z語 \n]{0,80}", first in 2usize..20, rest in 2usize..20) {
            let rows = wrapped(&text, first, rest);
            for (at, row) in rows.iter().enumerate() {
                prop_assert!(width(row) <= if at == 0 { first } else { rest }, "{row:?}");
            }
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(letters(&rows.concat()), letters(&text));
        }
    }
}
