//! A table in columns; or, where it is wider than the terminal, row by row.

use pulldown_cmark::Alignment;

use super::style::{Line, Span, Style, line_width};

const BETWEEN: &str = "  ";

pub(super) struct Table {
    alignments: Vec<Alignment>,
    /// The first is the heading.
    rows: Vec<Vec<Line>>,
    row: Vec<Line>,
}

impl Table {
    pub(super) fn new(alignments: Vec<Alignment>) -> Self {
        Self { alignments, rows: Vec::new(), row: Vec::new() }
    }

    pub(super) fn cell(&mut self, cell: Line) {
        self.row.push(cell);
    }

    pub(super) fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
    }

    pub(super) fn rows(self, width: usize) -> Vec<Line> {
        let widest =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| line_width(cell)).max();
        let widths: Vec<usize> = (0..self.alignments.len()).map(|column| widest(column).unwrap_or(0)).collect();
        let total = widths.iter().sum::<usize>() + BETWEEN.len() * widths.len().saturating_sub(1);
        if total <= width { self.columns(&widths) } else { self.records() }
    }

    fn columns(self, widths: &[usize]) -> Vec<Line> {
        let mut lines = Vec::new();
        for (at, row) in self.rows.into_iter().enumerate() {
            let mut line = Line::new();
            for (column, cell) in row.into_iter().enumerate() {
                let blank = widths.get(column).copied().unwrap_or(0).saturating_sub(line_width(&cell));
                let left = match self.alignments.get(column) {
                    Some(Alignment::Right) => blank,
                    Some(Alignment::Center) => blank / 2,
                    Some(Alignment::Left | Alignment::None) | None => 0,
                };
                let between = if column == 0 { "" } else { BETWEEN };
                line.push(Span::new(format!("{between}{}", " ".repeat(left)), Style::default()));
                line.extend(if at == 0 { bold(cell) } else { cell });
                line.push(Span::new(" ".repeat(blank - left), Style::default()));
            }
            lines.push(without_end(line));
            if at == 0 {
                let rules: Vec<String> = widths.iter().map(|&width| "─".repeat(width)).collect();
                lines.push(vec![Span::new(rules.join(BETWEEN), Style::DIM)]);
            }
        }
        lines
    }

    fn records(self) -> Vec<Line> {
        let mut rows = self.rows.into_iter();
        let heading: Vec<Line> = rows.next().unwrap_or_default().into_iter().map(bold).collect();
        if rows.len() == 0 {
            return heading;
        }
        let mut lines = Vec::new();
        for row in rows {
            if !lines.is_empty() {
                lines.push(Line::new());
            }
            for (column, cell) in row.into_iter().enumerate() {
                let mut line = heading.get(column).cloned().unwrap_or_default();
                line.push(Span::new(": ", Style::default()));
                line.extend(cell);
                lines.push(line);
            }
        }
        lines
    }
}

fn bold(cell: Line) -> Line {
    cell.into_iter().map(|span| Span { style: span.style.bold(), ..span }).collect()
}

/// Blanks at the end of a row would only be wrapped.
fn without_end(mut line: Line) -> Line {
    while let Some(span) = line.last_mut() {
        span.text.truncate(span.text.trim_end().len());
        if !span.text.is_empty() {
            break;
        }
        line.pop();
    }
    line
}
