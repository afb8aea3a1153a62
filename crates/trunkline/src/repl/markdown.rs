//! Renders Markdown to rows of a terminal. Unsupported syntax is shown as written.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::style::{Colour, StyledLine, StyledSpan, TextStyle, line_width, wrap};
use super::table::MarkdownTable;

const CODE: TextStyle = TextStyle::coloured(Colour::Cyan);
const INDENT: &str = "    ";

/// Passes of searching definitions: a duplicate is found only after the first one is removed.
const MAX_DEFINITION_PASSES: usize = 8;

/// Number of the next item, if the previous block ended with a numbered list. In a list with blank lines between its items,
/// each item is a block, and may begin with `1.` each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ListNumbering(Option<u64>);

/// Renders blocks to rows of `width` columns, the first one after `lead`. If the first block is not a paragraph or a
/// heading, the lead has its own row.
pub(super) fn render(
    source: &str,
    width: usize,
    lead: Option<StyledSpan>,
    numbering: &mut ListNumbering,
) -> Vec<StyledLine> {
    let source = without_definitions(source);
    let mut renderer = MarkdownRenderer { width, ..MarkdownRenderer::default() };
    renderer.margins.extend(lead.map(|lead| BlockMargin { first: Some(lead), rest: StyledSpan::default() }));
    for (at, event) in parse(&source).enumerate() {
        if let (0, Event::Start(Tag::List(Some(first)))) = (at, &event) {
            renderer.continued_number = numbering.0.filter(|number| number > first);
        }
        renderer.take(event);
    }
    if !renderer.shown && renderer.text.iter().all(|span| span.text.trim().is_empty()) {
        renderer.push(source.trim(), TextStyle::default());
    }
    renderer.flush();
    *numbering = ListNumbering(renderer.next_number);
    renderer.rows
}

fn parse(source: &str) -> Parser<'_> {
    Parser::new_ext(source, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS)
}

/// Escapes reference definitions (`[1]: https://…`), so that they are shown as text. The references are in other blocks, and
/// are shown as written.
fn without_definitions(source: &str) -> Cow<'_, str> {
    let mut source = Cow::Borrowed(source);
    for _ in 0..MAX_DEFINITION_PASSES {
        let mut spans: Vec<Range<usize>> =
            parse(&source).reference_definitions().iter().map(|(_, definition)| definition.span.clone()).collect();
        if spans.is_empty() {
            break;
        }
        // From the end, so that earlier offsets stay valid. Two blanks are a line break.
        spans.sort_by_key(|span| std::cmp::Reverse(span.start));
        let mut text = source.into_owned();
        for Range { start, end } in spans {
            text.insert_str(start + text[start..end].trim_end().len(), "  ");
            text.insert(start, '\\');
        }
        source = Cow::Owned(text);
    }
    source
}

/// A line of a code block.
pub(super) fn code_line(line: &str) -> StyledLine {
    vec![StyledSpan::new(format!("{INDENT}{}", line.replace('\t', INDENT)), TextStyle::DIM)]
}

#[derive(Default)]
struct MarkdownRenderer {
    width: usize,
    rows: Vec<StyledLine>,
    /// Text that is not wrapped yet.
    text: StyledLine,
    /// Current style, and the styles around it.
    style: TextStyle,
    outer_styles: Vec<TextStyle>,
    margins: Vec<BlockMargin>,
    /// Number of the next item, for each enclosing list.
    lists: Vec<Option<u64>>,
    links: Vec<(String, usize)>,
    table: Option<MarkdownTable>,
    code: bool,
    /// A blank row is due before the next block.
    gap: bool,
    /// A row was added after the lead.
    shown: bool,
    /// Number that the first list continues with.
    continued_number: Option<u64>,
    /// Number after the last item of the last block.
    next_number: Option<u64>,
}

/// Left margin of a block.
struct BlockMargin {
    /// Margin of its first row, until that is added.
    first: Option<StyledSpan>,
    rest: StyledSpan,
}

impl MarkdownRenderer {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.code => {
                for line in text.lines() {
                    self.row(code_line(line));
                }
            }
            Event::Text(text) | Event::InlineHtml(text) => self.push(&text, self.style),
            Event::Html(text) => self.push(&text, TextStyle::DIM),
            Event::Code(code) => self.push(&code, TextStyle { bold: self.style.bold, ..CODE }),
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.push(&text, self.style);
            }
            Event::SoftBreak => self.push(" ", self.style),
            Event::HardBreak => self.push("\n", self.style),
            Event::Rule => {
                self.begin_own_rows();
                self.row(vec![StyledSpan::new("─".repeat(self.width.min(40)), TextStyle::DIM)]);
                self.gap = true;
            }
            Event::TaskListMarker(done) => self.push(if done { "[x] " } else { "[ ] " }, self.style),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.begin_block(),
            Tag::Heading { .. } => {
                self.begin_block();
                self.push_style(self.style.bold());
            }
            Tag::BlockQuote(_) => {
                self.begin_own_rows();
                let bar = StyledSpan::new("│ ", TextStyle::DIM);
                self.margins.push(BlockMargin { first: None, rest: bar });
            }
            Tag::CodeBlock(_) => {
                self.begin_own_rows();
                self.code = true;
            }
            Tag::List(start) => {
                if self.lists.is_empty() {
                    self.begin_own_rows();
                } else {
                    self.flush();
                }
                self.lists.push(start.map(|start| self.continued_number.take().unwrap_or(start)));
            }
            Tag::Item => {
                self.begin_block();
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    Some(None) | None => "• ".to_owned(),
                };
                let rest = StyledSpan::new(" ".repeat(mark.chars().count()), TextStyle::default());
                self.margins.push(BlockMargin { first: Some(StyledSpan::new(mark, TextStyle::DIM)), rest });
            }
            Tag::Table(alignments) => {
                self.begin_own_rows();
                self.table = Some(MarkdownTable::new(alignments));
            }
            Tag::Emphasis => self.push_style(TextStyle { italic: true, ..self.style }),
            Tag::Strong => self.push_style(self.style.bold()),
            Tag::Strikethrough => self.push_style(TextStyle { struck: true, ..self.style }),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((dest_url.into_string(), self.text.len()));
                self.push_style(TextStyle { underlined: true, ..self.style });
            }
            Tag::HtmlBlock => self.begin_own_rows(),
            Tag::TableHead
            | Tag::TableRow
            | Tag::TableCell
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.flush();
                self.gap = true;
            }
            TagEnd::Heading(_) => {
                self.flush();
                self.pop_style();
                self.gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.margins.pop();
                (self.gap, self.next_number) = (true, None);
            }
            TagEnd::CodeBlock => (self.code, self.gap) = (false, true),
            TagEnd::List(_) => {
                self.next_number = self.lists.pop().flatten();
                self.gap |= self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                // An empty item still has its marker.
                if self.margins.last().is_some_and(|margin| margin.first.is_some()) {
                    self.row(Vec::new());
                }
                self.margins.pop();
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                if let Some(table) = &mut self.table {
                    table.cell(cell);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.end_row();
                }
            }
            TagEnd::Table => {
                let room = self.room();
                for row in self.table.take().map(|table| table.rows(room)).unwrap_or_default() {
                    self.row(row);
                }
                self.gap = true;
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => self.pop_style(),
            TagEnd::Link | TagEnd::Image => {
                self.pop_style();
                self.address();
            }
            TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    /// Adds a link's address after its text, unless they are the same.
    fn address(&mut self) {
        let Some((address, from)) = self.links.pop() else { return };
        let text: String = self.text[from.min(self.text.len())..].iter().map(|span| span.text.as_str()).collect();
        if text != address && address.trim_start_matches("mailto:") != text && !address.starts_with('#') {
            self.push(&format!(" ({address})"), TextStyle::DIM);
        }
    }

    fn push_style(&mut self, style: TextStyle) {
        self.outer_styles.push(std::mem::replace(&mut self.style, style));
    }

    fn pop_style(&mut self) {
        self.style = self.outer_styles.pop().unwrap_or_default();
    }

    fn push(&mut self, text: &str, style: TextStyle) {
        self.text.push(StyledSpan::new(text, style));
    }

    /// Begins a block: wraps the text before it, and adds a blank row if it is due.
    fn begin_block(&mut self) {
        self.flush();
        self.next_number = None;
        if std::mem::take(&mut self.gap) {
            let margin: StyledLine = self.margins.iter().map(|margin| margin.rest.clone()).collect();
            self.rows.push(margin);
        }
    }

    /// Like [`begin_block`](Self::begin_block), for a block that cannot follow the lead on its row.
    fn begin_own_rows(&mut self) {
        self.begin_block();
        if self.rows.is_empty()
            && let [BlockMargin { first: first @ Some(_), .. }] = self.margins.as_mut_slice()
            && self.lists.is_empty()
        {
            self.rows
                .push(first.take().map(|lead| StyledSpan::new(lead.text.trim_end(), lead.style)).into_iter().collect());
        }
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        if text.iter().all(|span| span.text.trim().is_empty()) {
            return;
        }
        let margin = |margin: &BlockMargin| margin.first.as_ref().unwrap_or(&margin.rest).clone();
        let first: StyledLine = self.margins.iter().map(margin).collect();
        let first = self.width.saturating_sub(line_width(&first)).max(20);
        for row in wrap(&text, first, self.room()) {
            self.row(row);
        }
    }

    /// Columns right of the margins.
    fn room(&self) -> usize {
        let taken: usize = self.margins.iter().map(|margin| line_width(std::slice::from_ref(&margin.rest))).sum();
        self.width.saturating_sub(taken).max(20)
    }

    fn row(&mut self, row: StyledLine) {
        let margins = self.margins.iter_mut();
        let mut whole: StyledLine =
            margins.map(|margin| margin.first.take().unwrap_or_else(|| margin.rest.clone())).collect();
        whole.retain(|span| !span.text.is_empty());
        whole.extend(row);
        self.rows.push(whole);
        self.shown = true;
    }
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
