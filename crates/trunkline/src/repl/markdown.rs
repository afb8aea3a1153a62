//! Markdown as rows of a terminal. What it cannot show, it shows as it was written.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::style::{Colour, Line, Span, Style, line_width, wrap};
use super::table::Table;

const CODE: Style = Style::coloured(Colour::Cyan);
const INDENT: &str = "    ";

/// How often definitions are looked for: one that repeats another is only seen without it.
const DEFINED: usize = 8;

/// What the next item of a numbered list would have, where the blocks before ended with one. A list with blank lines between
/// its items comes as a block for each, and may begin with `1.` each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Numbering(Option<u64>);

/// Renders blocks to rows of `width` columns, the first of them behind `lead`. A block that does not begin with running
/// text leaves the lead a row of its own.
pub(super) fn render(source: &str, width: usize, lead: Option<Span>, numbering: &mut Numbering) -> Vec<Line> {
    let source = without_definitions(source);
    let mut renderer = Renderer { width, ..Renderer::default() };
    renderer.margins.extend(lead.map(|lead| Margin { first: Some(lead), rest: Span::default() }));
    for (at, event) in parse(&source).enumerate() {
        if let (0, Event::Start(Tag::List(Some(first)))) = (at, &event) {
            renderer.goes_on = numbering.0.filter(|number| number > first);
        }
        renderer.take(event);
    }
    if !renderer.shown && renderer.text.iter().all(|span| span.text.trim().is_empty()) {
        renderer.push(source.trim(), Style::default());
    }
    renderer.flush();
    *numbering = Numbering(renderer.next_number);
    renderer.rows
}

fn parse(source: &str) -> Parser<'_> {
    Parser::new_ext(source, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS)
}

/// Makes definitions of references (`[1]: https://…`) the text they are for a reader: what refers to them is in another
/// block, and shown as it was written.
fn without_definitions(source: &str) -> Cow<'_, str> {
    let mut source = Cow::Borrowed(source);
    for _ in 0..DEFINED {
        let mut spans: Vec<Range<usize>> =
            parse(&source).reference_definitions().iter().map(|(_, definition)| definition.span.clone()).collect();
        if spans.is_empty() {
            break;
        }
        // From the end, so that the places of those before stay what they are. Two blanks end a row.
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
pub(super) fn code_line(line: &str) -> Line {
    vec![Span::new(format!("{INDENT}{}", line.replace('\t', INDENT)), Style::DIM)]
}

#[derive(Default)]
struct Renderer {
    width: usize,
    rows: Vec<Line>,
    /// Running text that is not yet wrapped.
    text: Line,
    /// How deep in which look the text is.
    style: Style,
    outer_styles: Vec<Style>,
    margins: Vec<Margin>,
    /// The number of the next item, for each list around.
    lists: Vec<Option<u64>>,
    links: Vec<(String, usize)>,
    table: Option<Table>,
    code: bool,
    /// The next block is to stand apart.
    gap: bool,
    /// There is more than the lead.
    shown: bool,
    /// The number that the first list begins with.
    goes_on: Option<u64>,
    /// The number that the last block ends before.
    next_number: Option<u64>,
}

/// What stands left of the rows of a block.
struct Margin {
    /// Of its first row, until that is there.
    first: Option<Span>,
    rest: Span,
}

impl Renderer {
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
            Event::Html(text) => self.push(&text, Style::DIM),
            Event::Code(code) => self.push(&code, Style { bold: self.style.bold, ..CODE }),
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.push(&text, self.style);
            }
            Event::SoftBreak => self.push(" ", self.style),
            Event::HardBreak => self.push("\n", self.style),
            Event::Rule => {
                self.block();
                self.row(vec![Span::new("─".repeat(self.width.min(40)), Style::DIM)]);
                self.gap = true;
            }
            Event::TaskListMarker(done) => self.push(if done { "[x] " } else { "[ ] " }, self.style),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.apart(),
            Tag::Heading { .. } => {
                self.apart();
                self.look(self.style.bold());
            }
            Tag::BlockQuote(_) => {
                self.block();
                let bar = Span::new("│ ", Style::DIM);
                self.margins.push(Margin { first: None, rest: bar });
            }
            Tag::CodeBlock(_) => {
                self.block();
                self.code = true;
            }
            Tag::List(start) => {
                if self.lists.is_empty() {
                    self.block();
                } else {
                    self.flush();
                }
                self.lists.push(start.map(|start| self.goes_on.take().unwrap_or(start)));
            }
            Tag::Item => {
                self.apart();
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    Some(None) | None => "• ".to_owned(),
                };
                let rest = Span::new(" ".repeat(mark.chars().count()), Style::default());
                self.margins.push(Margin { first: Some(Span::new(mark, Style::DIM)), rest });
            }
            Tag::Table(alignments) => {
                self.block();
                self.table = Some(Table::new(alignments));
            }
            Tag::Emphasis => self.look(Style { italic: true, ..self.style }),
            Tag::Strong => self.look(self.style.bold()),
            Tag::Strikethrough => self.look(Style { struck: true, ..self.style }),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((dest_url.into_string(), self.text.len()));
                self.look(Style { underlined: true, ..self.style });
            }
            Tag::HtmlBlock => self.block(),
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
                self.unlook();
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
                // An empty item still has its mark.
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
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => self.unlook(),
            TagEnd::Link | TagEnd::Image => {
                self.unlook();
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

    /// A link's address behind its text, unless that says it all.
    fn address(&mut self) {
        let Some((address, from)) = self.links.pop() else { return };
        let said: String = self.text[from.min(self.text.len())..].iter().map(|span| span.text.as_str()).collect();
        if said != address && address.trim_start_matches("mailto:") != said && !address.starts_with('#') {
            self.push(&format!(" ({address})"), Style::DIM);
        }
    }

    fn look(&mut self, style: Style) {
        self.outer_styles.push(std::mem::replace(&mut self.style, style));
    }

    fn unlook(&mut self) {
        self.style = self.outer_styles.pop().unwrap_or_default();
    }

    fn push(&mut self, text: &str, style: Style) {
        self.text.push(Span::new(text, style));
    }

    /// A block begins: what was said before is wrapped, and stands apart if it was a block.
    fn apart(&mut self) {
        self.flush();
        self.next_number = None;
        if std::mem::take(&mut self.gap) {
            let margin: Line = self.margins.iter().map(|margin| margin.rest.clone()).collect();
            self.rows.push(margin);
        }
    }

    /// As [`apart`](Self::apart), for a block that needs rows of its own: it leaves the lead behind.
    fn block(&mut self) {
        self.apart();
        if self.rows.is_empty()
            && let [Margin { first: first @ Some(_), .. }] = self.margins.as_mut_slice()
            && self.lists.is_empty()
        {
            self.rows.push(first.take().map(|lead| Span::new(lead.text.trim_end(), lead.style)).into_iter().collect());
        }
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        if text.iter().all(|span| span.text.trim().is_empty()) {
            return;
        }
        let margin = |margin: &Margin| margin.first.as_ref().unwrap_or(&margin.rest).clone();
        let first: Line = self.margins.iter().map(margin).collect();
        let first = self.width.saturating_sub(line_width(&first)).max(20);
        for row in wrap(&text, first, self.room()) {
            self.row(row);
        }
    }

    /// The columns right of the margins.
    fn room(&self) -> usize {
        let taken: usize = self.margins.iter().map(|margin| line_width(std::slice::from_ref(&margin.rest))).sum();
        self.width.saturating_sub(taken).max(20)
    }

    fn row(&mut self, row: Line) {
        let margins = self.margins.iter_mut();
        let mut whole: Line =
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
