//! Result of a measurement: one figure with its spread and its threshold.

use std::fmt;

use serde_json::{Value, json};

use super::samples::Spread;

/// A figure that is compared with its threshold and with the baseline.
#[derive(Debug, Clone)]
pub(crate) struct BenchFigure {
    /// Key in the baseline, such as `claude/warm`.
    pub(crate) id: String,
    /// Description for the report.
    pub(crate) what: String,
    pub(crate) unit: FigureUnit,
    pub(crate) spread: Spread,
    pub(crate) threshold: Option<BenchThreshold>,
    pub(crate) better: BetterWhen,
}

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FigureUnit {
    Times,
    Percent,
    Millis,
    Megabytes,
}

/// Required value of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum BenchThreshold {
    AtLeast(f64),
    AtMost(f64),
}

/// Direction in which a figure improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BetterWhen {
    Higher,
    Lower,
}

impl BenchThreshold {
    pub(crate) fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl BenchFigure {
    pub(crate) fn new(
        id: impl Into<String>,
        what: impl Into<String>,
        unit: FigureUnit,
        spread: Spread,
        threshold: BenchThreshold,
    ) -> Self {
        let better = match threshold {
            BenchThreshold::AtLeast(_) => BetterWhen::Higher,
            BenchThreshold::AtMost(_) => BetterWhen::Lower,
        };
        Self { id: id.into(), what: what.into(), unit, spread, threshold: Some(threshold), better }
    }

    /// A ratio without a threshold.
    pub(crate) fn without_threshold(
        id: impl Into<String>,
        what: impl Into<String>,
        spread: Spread,
        better: BetterWhen,
    ) -> Self {
        Self { id: id.into(), what: what.into(), unit: FigureUnit::Times, spread, threshold: None, better }
    }

    /// Whether the figure meets its threshold; `None` if it has none.
    pub(crate) fn passes(&self) -> Option<bool> {
        self.threshold.map(|threshold| threshold.is_met_by(self.spread.value))
    }

    /// Whether the figure is worse than `before` and the two spreads do not overlap.
    pub(crate) fn worse_than(&self, before: Spread) -> bool {
        match self.better {
            BetterWhen::Higher => self.spread.high < before.low,
            BetterWhen::Lower => self.spread.low > before.high,
        }
    }

    /// Whether the figure is a ratio. Milliseconds and megabytes depend on the machine.
    pub(crate) fn is_ratio(&self) -> bool {
        match self.unit {
            FigureUnit::Times | FigureUnit::Percent => true,
            FigureUnit::Millis | FigureUnit::Megabytes => false,
        }
    }

    pub(crate) fn mark(&self) -> &'static str {
        match self.passes() {
            Some(true) => "✓",
            Some(false) => "✗",
            None => " ",
        }
    }

    pub(crate) fn value(&self) -> String {
        self.unit.show(self.spread.value)
    }

    /// Lower and upper end of the spread.
    pub(crate) fn range(&self) -> String {
        let number = |value: f64| self.unit.number(value);
        format!("{}–{}", number(self.spread.low), number(self.spread.high))
    }

    /// The threshold as text.
    pub(crate) fn required(&self) -> String {
        match self.threshold {
            Some(BenchThreshold::AtLeast(least)) => format!("≥ {}", self.unit.show(least)),
            Some(BenchThreshold::AtMost(most)) => format!("≤ {}", self.unit.show(most)),
            None => String::new(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let Spread { value, low, high } = self.spread;
        json!({"id": self.id, "what": self.what, "unit": self.unit.to_string(), "value": value, "low": low, "high": high,
            "bar": self.required(), "clears": self.passes()})
    }
}

impl FigureUnit {
    fn number(self, value: f64) -> String {
        match self {
            Self::Times if value.abs() < 1.995 => format!("{value:.2}"),
            Self::Times if value.abs() < 9.95 => format!("{value:.1}"),
            Self::Times | Self::Percent | Self::Megabytes => format!("{value:.0}"),
            Self::Millis => format!("{value:.2}"),
        }
    }

    fn show(self, value: f64) -> String {
        let number = self.number(value);
        match self {
            Self::Times => format!("{number}×"),
            Self::Percent | Self::Millis | Self::Megabytes => format!("{number} {self}"),
        }
    }
}

impl fmt::Display for FigureUnit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Times => "×",
            Self::Percent => "%",
            Self::Megabytes => "MB",
            Self::Millis => "ms",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, threshold: BenchThreshold) -> BenchFigure {
        BenchFigure::new(
            "a/b",
            "a",
            FigureUnit::Times,
            Spread { value, low: value - 0.25, high: value + 0.25 },
            threshold,
        )
    }

    #[test]
    fn threshold_is_met_when_the_value_is_equal_or_better() {
        for (value, threshold, mark, required) in [
            (3.5, BenchThreshold::AtLeast(3.5), "✓", "≥ 3.5×"),
            (3.4, BenchThreshold::AtLeast(3.5), "✗", "≥ 3.5×"),
            (1.05, BenchThreshold::AtMost(1.05), "✓", "≤ 1.05×"),
            (1.06, BenchThreshold::AtMost(1.05), "✗", "≤ 1.05×"),
        ] {
            let figure = figure(value, threshold);
            assert_eq!((figure.mark(), figure.required().as_str()), (mark, required));
        }
        assert_eq!(figure(22.0, BenchThreshold::AtLeast(20.0)).required(), "≥ 20×");
        let free =
            BenchFigure::without_threshold("a/b", "a", Spread { value: 3.0, low: 2.0, high: 4.0 }, BetterWhen::Higher);
        assert_eq!((free.mark(), free.required().as_str(), free.range().as_str()), (" ", "", "2.0–4.0"));
    }

    #[test]
    fn figure_is_worse_only_when_the_spreads_do_not_overlap() {
        let before = |value: f64| Spread { value, low: value - 0.25, high: value + 0.25 };
        let more = figure(3.0, BenchThreshold::AtLeast(1.0));
        assert_eq!([3.25, 3.75].map(|was| more.worse_than(before(was))), [false, true]);
        let less = figure(3.0, BenchThreshold::AtMost(9.0));
        assert_eq!([2.75, 2.25].map(|was| less.worse_than(before(was))), [false, true]);
    }
}
