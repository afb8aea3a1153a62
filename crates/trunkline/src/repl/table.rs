//! A Markdown table in columns or, if it is wider than the terminal, row by row.

use pulldown_cmark::Alignment;

use super::style::{StyledLine, StyledSpan, TextStyle, line_width};

const COLUMN_GAP: &str = "  ";

pub(super) struct MarkdownTable {
    alignments: Vec<Alignment>,
    /// The first row is the heading.
    rows: Vec<Vec<StyledLine>>,
    row: Vec<StyledLine>,
}

impl MarkdownTable {
    pub(super) fn new(alignments: Vec<Alignment>) -> Self {
        Self { alignments, rows: Vec::new(), row: Vec::new() }
    }

    pub(super) fn cell(&mut self, cell: StyledLine) {
        self.row.push(cell);
    }

    pub(super) fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
    }

    pub(super) fn rows(self, width: usize) -> Vec<StyledLine> {
        let widest =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| line_width(cell)).max();
        let widths: Vec<usize> = (0..self.alignments.len()).map(|column| widest(column).unwrap_or(0)).collect();
        let total = widths.iter().sum::<usize>() + COLUMN_GAP.len() * widths.len().saturating_sub(1);
        if total <= width { self.columns(&widths) } else { self.records() }
    }

    fn columns(self, widths: &[usize]) -> Vec<StyledLine> {
        let mut lines = Vec::new();
        for (at, row) in self.rows.into_iter().enumerate() {
            let mut line = StyledLine::new();
            for (column, cell) in row.into_iter().enumerate() {
                let blank = widths.get(column).copied().unwrap_or(0).saturating_sub(line_width(&cell));
                let left = match self.alignments.get(column) {
                    Some(Alignment::Right) => blank,
                    Some(Alignment::Center) => blank / 2,
                    Some(Alignment::Left | Alignment::None) | None => 0,
                };
                let between = if column == 0 { "" } else { COLUMN_GAP };
                line.push(StyledSpan::new(format!("{between}{}", " ".repeat(left)), TextStyle::default()));
                line.extend(if at == 0 { bold(cell) } else { cell });
                line.push(StyledSpan::new(" ".repeat(blank - left), TextStyle::default()));
            }
            lines.push(trim_end(line));
            if at == 0 {
                let rules: Vec<String> = widths.iter().map(|&width| "─".repeat(width)).collect();
                lines.push(vec![StyledSpan::new(rules.join(COLUMN_GAP), TextStyle::DIM)]);
            }
        }
        lines
    }

    fn records(self) -> Vec<StyledLine> {
        let mut rows = self.rows.into_iter();
        let heading: Vec<StyledLine> = rows.next().unwrap_or_default().into_iter().map(bold).collect();
        if rows.len() == 0 {
            return heading;
        }
        let mut lines = Vec::new();
        for row in rows {
            if !lines.is_empty() {
                lines.push(StyledLine::new());
            }
            for (column, cell) in row.into_iter().enumerate() {
                let mut line = heading.get(column).cloned().unwrap_or_default();
                line.push(StyledSpan::new(": ", TextStyle::default()));
                line.extend(cell);
                lines.push(line);
            }
        }
        lines
    }
}

fn bold(cell: StyledLine) -> StyledLine {
    cell.into_iter().map(|span| StyledSpan { style: span.style.bold(), ..span }).collect()
}

/// The row without trailing blanks, which might wrap.
fn trim_end(mut line: StyledLine) -> StyledLine {
    while let Some(span) = line.last_mut() {
        span.text.truncate(span.text.trim_end().len());
        if !span.text.is_empty() {
            break;
        }
        line.pop();
    }
    line
}
