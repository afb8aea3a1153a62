//! Results of the profile as text: figures with their thresholds, and system calls by name. Pure functions.

use crate::bench::figure::BenchThreshold;

/// Rows of the table of system calls.
const MAX_NAMES: usize = 20;

/// Width of the last column; longer texts exceed it.
const MAX_LAST_WIDTH: usize = 10;

/// One figure with its threshold.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProfileLine {
    pub(super) what: String,
    /// The value, or the reason why it was not measured.
    pub(super) figure: Result<f64, String>,
    pub(super) unit: ProfileUnit,
    pub(super) threshold: Option<BenchThreshold>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProfileUnit {
    Count,
    Times,
    Millis,
    Megabytes,
}

impl ProfileLine {
    pub(super) fn new(what: impl Into<String>, unit: ProfileUnit, value: f64, threshold: BenchThreshold) -> Self {
        Self { what: what.into(), figure: Ok(value), unit, threshold: Some(threshold) }
    }

    /// A count, or the reason why there is none.
    pub(super) fn counted(what: impl Into<String>, figure: Result<f64, String>, most: f64) -> Self {
        Self { what: what.into(), figure, unit: ProfileUnit::Count, threshold: Some(BenchThreshold::AtMost(most)) }
    }

    /// A figure without a threshold.
    pub(super) fn informative(what: impl Into<String>, unit: ProfileUnit, value: f64) -> Self {
        Self { what: what.into(), figure: Ok(value), unit, threshold: None }
    }

    fn value(&self) -> String {
        match &self.figure {
            Ok(value) => self.unit.show(*value),
            Err(_) => "not measured".to_owned(),
        }
    }

    fn bar(&self) -> String {
        match self.threshold {
            Some(BenchThreshold::AtLeast(least)) => format!("≥ {}", self.unit.show(least)),
            Some(BenchThreshold::AtMost(most)) => format!("≤ {}", self.unit.show(most)),
            None => String::new(),
        }
    }

    /// Whether the bar is met, or why that is not known.
    fn verdict(&self) -> String {
        match (&self.figure, self.threshold) {
            (Ok(value), Some(threshold)) if threshold.is_met_by(*value) => "yes".to_owned(),
            (Ok(_), Some(_)) => "NO".to_owned(),
            (Ok(_), None) => String::new(),
            (Err(reason), _) => format!("? {reason}"),
        }
    }
}

impl ProfileUnit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Count if value.abs() < 1000.0 => format!("{}", (value * 10.0).round() / 10.0),
            Self::Count => grouped(value),
            Self::Times => format!("{value:.2}×"),
            Self::Millis => format!("{value:.2} ms"),
            Self::Megabytes => format!("{value:.1} MB"),
        }
    }
}

/// A whole number with a comma between thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// All figures with their bars, and whether they are met.
pub(super) fn figures(lines: &[ProfileLine]) -> String {
    let rows: Vec<_> =
        lines.iter().map(|line| vec![line.what.clone(), line.value(), line.bar(), line.verdict()]).collect();
    aligned(&["", "figure", "bar", "met"], &rows)
}

/// Calls in a turn with one recipe.
pub(super) struct CallColumn<'a> {
    pub(super) title: &'a str,
    pub(super) by_name: &'a [(String, f64)],
}

impl CallColumn<'_> {
    fn count(&self, name: &str) -> f64 {
        self.by_name.iter().find(|call| call.0 == name).map_or(0.0, |call| call.1)
    }
}

/// Calls in a turn by name, the most frequent first.
pub(super) fn calls(columns: &[CallColumn<'_>]) -> String {
    let most = |name: &str| columns.iter().map(|column| column.count(name)).fold(0.0, f64::max);
    let mut names: Vec<&str> =
        columns.iter().flat_map(|column| column.by_name).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.sort_by(|left, right| most(right).total_cmp(&most(left)));
    let row = |what: &str, names: &[&str]| -> Vec<String> {
        let sum = |column: &CallColumn<'_>| names.iter().map(|name| column.count(name)).sum::<f64>();
        [what.to_owned()].into_iter().chain(columns.iter().map(|column| format!("{:.2}", sum(column)))).collect()
    };
    let (frequent, rare) = names.split_at(names.len().min(MAX_NAMES));
    let mut rows: Vec<Vec<String>> = frequent.iter().map(|name| row(name, &[name])).collect();
    if !rare.is_empty() {
        rows.push(row(&format!("{} others", rare.len()), rare));
    }
    rows.push(row("total", &names));
    let titles = columns.iter().map(|column| column.title);
    aligned(&["system calls per turn"].into_iter().chain(titles).collect::<Vec<_>>(), &rows)
}

/// A table in Markdown with columns of equal width, so that it can be read in a terminal, too.
fn aligned(heads: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        // A reason in the last column may be longer than all others.
        let is_reason = |length: &usize| column + 1 == heads.len() && *length > MAX_LAST_WIDTH;
        let cells = rows.iter().map(|row| row[column].chars().count()).filter(|length| !is_reason(length));
        cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: String = widths.iter().map(|width| format!("|{}", "-".repeat(width + 2))).collect();
    let body: String = rows.iter().map(|row| line(&mut row.iter().map(String::as_str))).collect();
    format!("{}{rule}|\n{body}", line(&mut heads.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_their_bars_and_reasons_for_missing_ones() {
        let lines = [
            ProfileLine::counted("system calls", Ok(78.04), 40.0),
            ProfileLine::counted("instructions", Ok(449_999.6), 450_000.0),
            ProfileLine::counted("allocations", Err("cannot start cc".to_owned()), 300.0),
            ProfileLine::new("rate", ProfileUnit::Times, 0.65, BenchThreshold::AtLeast(0.65)),
            ProfileLine::informative("writes", ProfileUnit::Count, 10.0),
        ];
        assert_eq!(
            figures(&lines),
            "\
|              | figure       | bar       | met |
|--------------|--------------|-----------|-----|
| system calls | 78           | ≤ 40      | NO  |
| instructions | 450,000      | ≤ 450,000 | yes |
| allocations  | not measured | ≤ 300     | ? cannot start cc |
| rate         | 0.65×        | ≥ 0.65×   | yes |
| writes       | 10           |           |     |
"
        );
    }

    #[test]
    fn calls_are_sorted_by_their_number_and_the_rare_ones_are_summed() {
        let named = |name: &str, count: f64| (name.to_owned(), count);
        let mut codex: Vec<(String, f64)> = (0..MAX_NAMES).map(|index| named(&format!("rare{index}"), 0.5)).collect();
        codex.push(named("statx", 9.0));
        let plain = [named("futex", 5.5), named("statx", 1.0)];
        let shown =
            calls(&[CallColumn { title: "plain", by_name: &plain }, CallColumn { title: "codex", by_name: &codex }]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 2 + MAX_NAMES + 2);
        let expected = [
            "| system calls per turn | plain | codex |",
            "| statx                 | 1.00  | 9.00  |",
            "| futex                 | 5.50  | 0.00  |",
            "| 2 others              | 0.00  | 1.00  |",
            "| total                 | 6.50  | 19.00 |",
        ];
        assert_eq!([lines[0], lines[2], lines[3], lines[22], lines[23]], expected);
    }
}
