//! Text with a look, and how it is wrapped to a width.

use unicode_width::UnicodeWidthChar;

use super::plain::is_shown;

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) bold: bool,
    pub(super) dim: bool,
    pub(super) italic: bool,
    pub(super) underlined: bool,
    pub(super) struck: bool,
    pub(super) colour: Option<Colour>,
}

/// The terminal's own colours, by their numbers: what they look like is the user's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Red = 31,
    Green = 32,
    Cyan = 36,
}

impl Style {
    pub(super) const DIM: Self =
        Self { dim: true, bold: false, italic: false, underlined: false, struck: false, colour: None };

    pub(super) const fn coloured(colour: Colour) -> Self {
        Self { colour: Some(colour), dim: false, ..Self::DIM }
    }

    pub(super) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    /// What switches a terminal to it; nothing for plain text.
    fn codes(self) -> Vec<u8> {
        let switches = [(self.bold, 1), (self.dim, 2), (self.italic, 3), (self.underlined, 4), (self.struck, 9)];
        let switches = switches.into_iter().filter_map(|(on, code)| on.then_some(code));
        switches.chain(self.colour.map(|colour| colour as u8)).collect()
    }
}

/// A piece of text with one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) text: String,
    pub(super) style: Style,
}

impl Span {
    pub(super) fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

/// One row of a terminal.
pub(super) type Line = Vec<Span>;

/// Whether looks are shown at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Colours,
    None,
}

impl Paint {
    /// The last gate before the terminal: Markdown may spell out what no text may hold, as in `&#27;`.
    pub(super) fn span(self, text: &str, style: Style) -> String {
        let text: String = text.chars().filter(|&c| is_shown(c)).collect();
        let codes: Vec<String> = style.codes().iter().map(u8::to_string).collect();
        match self {
            Self::Colours if !codes.is_empty() && !text.is_empty() => {
                format!("\u{1b}[{}m{text}\u{1b}[0m", codes.join(";"))
            }
            Self::Colours | Self::None => text,
        }
    }

    pub(super) fn line(self, line: &[Span]) -> String {
        line.iter().map(|span| self.span(&span.text, span.style)).collect()
    }
}

/// How many columns a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

pub(super) fn line_width(line: &[Span]) -> usize {
    line.iter().map(|span| width(&span.text)).sum()
}

fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// The end of a text that fits into `columns`.
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

/// Breaks text between words so that its first row takes `first` columns and all others `rest`; a word that is longer is cut.
pub(super) fn wrap(spans: &[Span], first: usize, rest: usize) -> Vec<Line> {
    let mut rows = Rows { rows: vec![Vec::new()], column: 0, first: first.max(1), rest: rest.max(1) };
    let mut word: Vec<(char, Style)> = Vec::new();
    let mut space: Option<Style> = None;
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

struct Rows {
    rows: Vec<Line>,
    column: usize,
    first: usize,
    rest: usize,
}

impl Rows {
    fn next(&mut self) {
        self.rows.push(Vec::new());
        self.column = 0;
    }

    fn room(&self) -> usize {
        if self.rows.len() == 1 { self.first } else { self.rest }
    }

    /// Puts a word behind the space before it, or on a row of its own.
    fn put(&mut self, word: &mut Vec<(char, Style)>, space: &mut Option<Style>) {
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

    fn push(&mut self, c: char, style: Style) {
        self.column += char_width(c);
        let Some(row) = self.rows.last_mut() else { return };
        match row.last_mut() {
            Some(span) if span.style == style => span.text.push(c),
            _ => row.push(Span::new(c, style)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrapped(text: &str, first: usize, rest: usize) -> Vec<String> {
        let rows = wrap(&[Span::new(text, Style::default())], first, rest);
        rows.iter().map(|row| Paint::None.line(row)).collect()
    }

    #[test]
    fn words_are_kept_whole_where_they_fit() {
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
    fn a_look_is_switched_on_and_off_again() {
        let spans = [Span::new("a ", Style::default()), Span::new("b c", Style::default().bold())];
        assert_eq!(Paint::Colours.line(&wrap(&spans, 9, 9)[0]), "a \u{1b}[1mb c\u{1b}[0m");
        assert_eq!(Paint::None.line(&wrap(&spans, 9, 9)[0]), "a b c");
    }

    #[test]
    fn the_end_that_fits() {
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
