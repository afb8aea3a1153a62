//! The result as a table: a row for each case, a column for each CLI, and footnotes for cases that do not apply.

use std::time::Duration;

/// Outcome of a case with a CLI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CaseOutcome {
    Passed(Duration),
    /// Failed while other cases ran, and passed alone.
    PassedAlone(Duration),
    Failed,
    /// The CLI cannot pass the case by design; the text is the reason.
    NotApplicable(&'static str),
}

pub(crate) struct ConformanceTable {
    /// Title and version of each column.
    pub(crate) clis: Vec<(String, String)>,
    pub(crate) rows: Vec<ConformanceRow>,
    /// Lines below the table.
    pub(crate) notes: Vec<String>,
    pub(crate) took: Duration,
}

pub(crate) struct ConformanceRow {
    pub(crate) title: String,
    /// One for each CLI, in the order of the columns.
    pub(crate) outcomes: Vec<CaseOutcome>,
}

/// Layout of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConformanceTableStyle {
    Terminal,
    Markdown,
}

impl ConformanceTable {
    fn failed_cells(&self) -> usize {
        self.rows.iter().flat_map(|row| &row.outcomes).filter(|outcome| **outcome == CaseOutcome::Failed).count()
    }

    /// A line for each failed case and for each note that reports a failure.
    pub(crate) fn failures(&self) -> Vec<String> {
        let failed = self.rows.iter().flat_map(|row| {
            let cells = self.clis.iter().zip(&row.outcomes).filter(|(_, outcome)| **outcome == CaseOutcome::Failed);
            cells.map(|((cli, version), _)| format!("✗ {cli} {version}: {}", row.title))
        });
        failed.chain(self.notes.iter().filter(|note| note.starts_with('✗')).cloned()).collect()
    }

    pub(crate) fn show(&self, style: ConformanceTableStyle) -> String {
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
        if style == ConformanceTableStyle::Terminal {
            text += &format!("\n{} s, {} failed\n", self.took.as_secs(), self.failed_cells());
        }
        text
    }
}

fn cell(outcome: &CaseOutcome, style: ConformanceTableStyle, footnotes: &mut Vec<&'static str>) -> String {
    match outcome {
        // Durations help to make the suite faster; in documentation they are noise.
        CaseOutcome::Passed(took) if style == ConformanceTableStyle::Terminal => {
            format!("✓ {:.0} s", took.as_secs_f64())
        }
        CaseOutcome::Passed(_) => "✓".to_owned(),
        CaseOutcome::PassedAlone(took) => format!("✓ alone, {:.0} s", took.as_secs_f64()),
        CaseOutcome::Failed => "✗".to_owned(),
        CaseOutcome::NotApplicable(why) => {
            let number = footnotes.iter().position(|note| note == why).unwrap_or_else(|| {
                footnotes.push(why);
                footnotes.len() - 1
            });
            format!("– {}", number + 1)
        }
    }
}

fn layout(lines: &[Vec<String>], style: ConformanceTableStyle) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += &match style {
            ConformanceTableStyle::Terminal => format!("{}\n", cells.join("  ").trim_end()),
            ConformanceTableStyle::Markdown => format!("| {} |\n", cells.join(" | ")),
        };
        if index == 0 && style == ConformanceTableStyle::Markdown {
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
    fn failures_are_empty_when_all_cases_passed() {
        let took = Duration::from_secs(2);
        let mut table = ConformanceTable {
            clis: vec![("a".to_owned(), "1.0".to_owned()), ("b".to_owned(), "2.0".to_owned())],
            rows: vec![ConformanceRow {
                title: "one".to_owned(),
                outcomes: vec![CaseOutcome::Passed(took), CaseOutcome::NotApplicable("no.")],
            }],
            notes: vec!["! a 1.0 printed something new".to_owned()],
            took,
        };
        assert_eq!(table.failures(), Vec::<String>::new());
        table.rows[0].outcomes[1] = CaseOutcome::Failed;
        table.notes.push("✗ the SDKs".to_owned());
        assert_eq!(table.failures(), ["✗ b 2.0: one", "✗ the SDKs"]);
    }

    #[test]
    fn table_is_laid_out_for_terminal_and_markdown() {
        let took = Duration::from_secs(2);
        let table = ConformanceTable {
            clis: vec![("a".to_owned(), "1.0".to_owned()), ("b".to_owned(), "2.0".to_owned())],
            rows: vec![
                ConformanceRow {
                    title: "one".to_owned(),
                    outcomes: vec![CaseOutcome::Passed(took), CaseOutcome::Failed],
                },
                ConformanceRow {
                    title: "two".to_owned(),
                    outcomes: vec![CaseOutcome::Passed(took), CaseOutcome::PassedAlone(took)],
                },
                ConformanceRow {
                    title: "more".to_owned(),
                    outcomes: vec![CaseOutcome::NotApplicable("no."), CaseOutcome::NotApplicable("no.")],
                },
            ],
            notes: vec!["SDKs: ✓".to_owned()],
            took: Duration::from_secs(61),
        };
        let terminal = "      a 1.0  b 2.0\none   ✓ 2 s  ✗\ntwo   ✓ 2 s  ✓ alone, 2 s\nmore  – 1    – 1\n\n1. no.\nSDKs: ✓\n\n61 s, 1 failed\n";
        assert_eq!(table.show(ConformanceTableStyle::Terminal), terminal);
        let markdown = "|      | a 1.0 | b 2.0        |\n|------|-------|--------------|\n| one  | ✓     | ✗            |\n\
            | two  | ✓     | ✓ alone, 2 s |\n| more | – 1   | – 1          |\n\n1. no.\nSDKs: ✓\n";
        assert_eq!(table.show(ConformanceTableStyle::Markdown), markdown);
    }
}
