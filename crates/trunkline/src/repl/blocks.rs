//! Splits a stream of Markdown into blocks that later text cannot change.
//!
//! Printed output cannot be changed, and the meaning of a line may depend on the following ones. So a block is returned when
//! the next one begins. Only the lines of a fenced code block are returned one by one.

/// A block longer than this is returned before it is complete.
const MAX_BLOCK_BYTES: usize = 64 * 1024;

/// A part of the text that later text cannot change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MarkdownPiece {
    /// Complete blocks.
    Markdown(String),
    /// Beginning of a fenced code block.
    CodeStart,
    /// A line of the code block.
    Code(String),
}

#[derive(Debug, Default)]
pub(super) struct MarkdownBlocks {
    /// The incomplete last line.
    line: String,
    block: String,
    /// A blank line followed the block.
    blank: bool,
    fence: Option<CodeFence>,
}

#[derive(Debug, Clone, Copy)]
struct CodeFence {
    mark: char,
    length: usize,
    indent: usize,
    /// It is part of a list, whose block continues after it.
    in_list: bool,
}

impl MarkdownBlocks {
    pub(super) fn push(&mut self, text: &str) -> Vec<MarkdownPiece> {
        let mut pieces = Vec::new();
        for part in text.split_inclusive('\n') {
            self.line.push_str(part);
            if self.line.ends_with('\n') {
                let line = std::mem::take(&mut self.line);
                self.take(line.trim_end_matches('\n'), &mut pieces);
            } else if self.line.len() > MAX_BLOCK_BYTES {
                let line = std::mem::take(&mut self.line);
                self.take(&line, &mut pieces);
            }
        }
        pieces
    }

    /// Returns the rest at the end of the text.
    pub(super) fn finish(&mut self) -> Vec<MarkdownPiece> {
        let mut pieces = Vec::new();
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.take(&line, &mut pieces);
        }
        self.emit(&mut pieces);
        *self = Self::default();
        pieces
    }

    /// Last line of the text that was not returned yet.
    pub(super) fn tail(&self) -> &str {
        if self.line.trim().is_empty() { self.block.trim_end().lines().last().unwrap_or_default() } else { &self.line }
    }

    fn take(&mut self, line: &str, pieces: &mut Vec<MarkdownPiece>) {
        if let Some(fence) = self.fence {
            let closed = fence.is_closed_by(line);
            if closed {
                self.fence = None;
            }
            match (fence.in_list, closed) {
                (true, _) => self.keep(line, pieces),
                (false, true) => {}
                (false, false) => pieces.push(MarkdownPiece::Code(without_indent(line, fence.indent))),
            }
            return;
        }
        if line.trim().is_empty() {
            self.blank = !self.block.is_empty();
            return;
        }
        let continues_list = is_list(&self.block) && line.starts_with([' ', '\t']);
        if std::mem::take(&mut self.blank) {
            if continues_list {
                self.block.push('\n');
            } else {
                self.emit(pieces);
            }
        }
        if let Some(fence) = CodeFence::opened_by(line) {
            self.fence = Some(CodeFence { in_list: continues_list, ..fence });
            if !continues_list {
                self.emit(pieces);
                pieces.push(MarkdownPiece::CodeStart);
                return;
            }
        }
        let heading = self.block.is_empty() && is_heading(line);
        self.keep(line, pieces);
        if heading {
            self.emit(pieces);
        }
    }

    fn keep(&mut self, line: &str, pieces: &mut Vec<MarkdownPiece>) {
        self.block.push_str(line);
        self.block.push('\n');
        if self.block.len() > MAX_BLOCK_BYTES {
            self.emit(pieces);
        }
    }

    fn emit(&mut self, pieces: &mut Vec<MarkdownPiece>) {
        if !self.block.is_empty() {
            pieces.push(MarkdownPiece::Markdown(std::mem::take(&mut self.block)));
        }
        self.blank = false;
    }
}

impl CodeFence {
    fn opened_by(line: &str) -> Option<Self> {
        let text = line.trim_start();
        let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
        let length = text.chars().take_while(|&c| c == mark).count();
        // With another backtick on the line it is a code span.
        let is_span = mark == '`' && text[length..].contains('`');
        let indent = line.len() - text.len();
        (length >= 3 && !is_span).then_some(Self { mark, length, indent, in_list: false })
    }

    fn is_closed_by(self, line: &str) -> bool {
        let text = line.trim();
        text.len() >= self.length && text.chars().all(|c| c == self.mark)
    }
}

fn is_heading(line: &str) -> bool {
    let marks = line.chars().take_while(|&c| c == '#').count();
    (1..=6).contains(&marks) && line[marks..].starts_with(' ')
}

/// Whether a block is a list.
fn is_list(block: &str) -> bool {
    let rest = block.trim_start();
    let number = rest.chars().take_while(char::is_ascii_digit).count();
    let marks: &[char] = if number == 0 { &['-', '*', '+'] } else { &['.', ')'] };
    rest[number..].strip_prefix(marks).is_some_and(|rest| rest.starts_with([' ', '\t']))
}

fn without_indent(line: &str, indent: usize) -> String {
    let blank = line.chars().take(indent).take_while(|c| *c == ' ').count();
    line[blank..].to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> Vec<MarkdownPiece> {
        let mut blocks = MarkdownBlocks::default();
        let mut pieces = blocks.push(text);
        pieces.extend(blocks.finish());
        pieces
    }

    fn text(text: &str) -> MarkdownPiece {
        MarkdownPiece::Markdown(text.to_owned())
    }

    fn code(line: &str) -> MarkdownPiece {
        MarkdownPiece::Code(line.to_owned())
    }

    #[test]
    fn splits_texts_into_blocks() {
        for (whole, pieces) in [
            ("one\ntwo\n\n\nthree", vec![text("one\ntwo\n"), text("three\n")]),
            ("# head\nbody", vec![text("# head\n"), text("body\n")]),
            ("a\n```rust\nlet x;\n\n  y\n```\nb", {
                vec![text("a\n"), MarkdownPiece::CodeStart, code("let x;"), code(""), code("  y"), text("b\n")]
            }),
            ("~~~~\n~~~\n~~~~~\nafter", vec![MarkdownPiece::CodeStart, code("~~~"), text("after\n")]),
            ("  ```\n    x\n  ```", vec![MarkdownPiece::CodeStart, code("  x")]),
            ("```never closed\nx", vec![MarkdownPiece::CodeStart, code("x")]),
            ("``` `span` ```", vec![text("``` `span` ```\n")]),
            ("- a\n- b\n\n- c", vec![text("- a\n- b\n"), text("- c\n")]),
            ("1. a\n\n   more\n   ```\n\n   x\n   ```\n2. b", {
                vec![text("1. a\n\n   more\n   ```\n\n   x\n   ```\n2. b\n")]
            }),
            ("|a|b|\n|-|-|\n|1|2|\n", vec![text("|a|b|\n|-|-|\n|1|2|\n")]),
            ("\n\n", vec![]),
        ] {
            assert_eq!(all(whole), pieces, "{whole:?}");
        }
    }

    #[test]
    fn block_waits_for_the_next_one_and_code_does_not() {
        let mut blocks = MarkdownBlocks::default();
        assert_eq!(blocks.push("one\n\n"), []);
        assert_eq!(blocks.tail(), "one");
        assert_eq!(blocks.push("tw"), [], "it may be a list, a fence, or more of a list");
        assert_eq!(blocks.push("o\n"), [text("one\n")]);
        assert_eq!(blocks.push("```\nx\ny"), [text("two\n"), MarkdownPiece::CodeStart, code("x")]);
        assert_eq!(blocks.tail(), "y");
    }

    proptest! {
        #[test]
        fn pieces_do_not_depend_on_how_the_text_arrives(text in "[-a`~#1. \n|*é]{0,60}", cut in 0usize..60) {
            let cut = text.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(text.len());
            let mut blocks = MarkdownBlocks::default();
            let mut pieces = blocks.push(&text[..cut]);
            pieces.extend(blocks.push(&text[cut..]));
            pieces.extend(blocks.finish());
            prop_assert_eq!(pieces, all(&text));
        }

        #[test]
        fn no_word_is_lost(text in "([a-z]{1,5}[ \n]{1,2}){0,20}") {
            let shown: String = all(&text).into_iter().map(|piece| match piece {
                MarkdownPiece::Markdown(text) | MarkdownPiece::Code(text) => text,
                MarkdownPiece::CodeStart => String::new(),
            }).collect();
            prop_assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        }
    }
}
