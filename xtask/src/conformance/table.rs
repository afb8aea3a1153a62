//! The result: cases down, CLIs across, what could not be in footnotes.

use std::time::Duration;

/// What came of a case for a CLI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed(Duration),
    /// Not the first time, among others, but then by itself.
    PassedAlone(Duration),
    Failed,
    /// The CLI is not made for it.
    Cannot(&'static str),
}

pub(crate) struct Table {
    /// Names and versions.
    pub(crate) clis: Vec<(String, String)>,
    pub(crate) rows: Vec<Row>,
    /// Lines of their own below the table.
    pub(crate) notes: Vec<String>,
    pub(crate) took: Duration,
}

pub(crate) struct Row {
    pub(crate) title: String,
    /// In the order of the CLIs.
    pub(crate) outcomes: Vec<Outcome>,
}

/// How cells are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Terminal,
    Markdown,
}

impl Table {
    pub(crate) fn failures(&self) -> usize {
        self.rows.iter().flat_map(|row| &row.outcomes).filter(|outcome| **outcome == Outcome::Failed).count()
    }

    /// What keeps the table from being green, a line each.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let failed = self.rows.iter().flat_map(|row| {
            let cells = self.clis.iter().zip(&row.outcomes).filter(|(_, outcome)| **outcome == Outcome::Failed);
            cells.map(|((cli, version), _)| format!("✗ {cli} {version}: {}", row.title))
        });
        failed.chain(self.notes.iter().filter(|note| note.starts_with('✗')).cloned()).collect()
    }

    pub(crate) fn show(&self, style: Style) -> String {
        let mut footnotes: Vec<&str> = Vec::new();
        let head = std::iter::once(String::new())
            .chain(self.clis.iter().map(|(name, version)| format!("{name} {version}")))
            .collect();
        let mut lines: Vec<Vec<String>> = vec![head];
        for row in &self.rows {
            let cells = row.outcomes.iter().map(|outcome| cell(outcome, style, &mut footnotes));
            lines.push(std::iter::once(row.title.clone()).chain(cells).collect());
        }
        let mut text = layout(&lines, style);
        for (number, footnote) in footnotes.iter().enumerate() {
            text += &format!("\n{}. {footnote}", number + 1);
        }
        for note in &self.notes {
            text += &format!("\n{note}\n");
        }
        if style == Style::Terminal {
            text += &format!("\n{} s, {} failed\n", self.took.as_secs(), self.failures());
        }
        text
    }
}

fn cell(outcome: &Outcome, style: Style, footnotes: &mut Vec<&'static str>) -> String {
    match outcome {
        // Seconds help whoever makes it faster; for readers they are noise.
        Outcome::Passed(took) if style == Style::Terminal => format!("✓ {:.0} s", took.as_secs_f64()),
        Outcome::Passed(_) => "✓".to_owned(),
        Outcome::PassedAlone(took) => format!("✓ alone, {:.0} s", took.as_secs_f64()),
        Outcome::Failed => "✗".to_owned(),
        Outcome::Cannot(why) => {
            let number = footnotes.iter().position(|note| note == why).unwrap_or_else(|| {
                footnotes.push(why);
                footnotes.len() - 1
            });
            format!("– {}", number + 1)
        }
    }
}

fn layout(lines: &[Vec<String>], style: Style) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += &match style {
            Style::Terminal => format!("{}\n", cells.join("  ").trim_end()),
            Style::Markdown => format!("| {} |\n", cells.join(" | ")),
        };
        if index == 0 && style == Style::Markdown {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text += &format!("|-{}-|\n", rules.join("-|-"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_none_when_all_cells_are_green() {
        let took = Duration::from_secs(2);
        let mut table = Table {
            clis: vec![("a".to_owned(), "1.0".to_owned()), ("b".to_owned(), "2.0".to_owned())],
            rows: vec![Row { title: "one".to_owned(), outcomes: vec![Outcome::Passed(took), Outcome::Cannot("no.")] }],
            notes: vec!["! a 1.0 printed something new".to_owned()],
            took,
        };
        assert_eq!(table.complaints(), Vec::<String>::new());
        table.rows[0].outcomes[1] = Outcome::Failed;
        table.notes.push("✗ the SDKs".to_owned());
        assert_eq!(table.complaints(), ["✗ b 2.0: one", "✗ the SDKs"]);
    }

    #[test]
    fn both_styles() {
        let took = Duration::from_secs(2);
        let table = Table {
            clis: vec![("a".to_owned(), "1.0".to_owned()), ("b".to_owned(), "2.0".to_owned())],
            rows: vec![
                Row { title: "one".to_owned(), outcomes: vec![Outcome::Passed(took), Outcome::Failed] },
                Row { title: "two".to_owned(), outcomes: vec![Outcome::Passed(took), Outcome::PassedAlone(took)] },
                Row { title: "more".to_owned(), outcomes: vec![Outcome::Cannot("no."), Outcome::Cannot("no.")] },
            ],
            notes: vec!["SDKs: ✓".to_owned()],
            took: Duration::from_secs(61),
        };
        let terminal = "      a 1.0  b 2.0\none   ✓ 2 s  ✗\ntwo   ✓ 2 s  ✓ alone, 2 s\nmore  – 1    – 1\n\n1. no.\nSDKs: ✓\n\n61 s, 1 failed\n";
        assert_eq!(table.show(Style::Terminal), terminal);
        let markdown = "|      | a 1.0 | b 2.0        |\n|------|-------|--------------|\n| one  | ✓     | ✗            |\n\
            | two  | ✓     | ✓ alone, 2 s |\n| more | – 1   | – 1          |\n\n1. no.\nSDKs: ✓\n";
        assert_eq!(table.show(Style::Markdown), markdown);
    }
}
