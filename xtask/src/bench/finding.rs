//! What the bench finds out: one figure with its spread, and the bar it has to clear.

use std::fmt;

use serde_json::{Value, json};

use super::stats::Spread;

/// One figure that is compared: with its bar, and with what it was before.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    /// Names it in the baseline: `claude/warm`.
    pub(crate) id: String,
    /// For people.
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) spread: Spread,
    pub(crate) bar: Option<Bar>,
    /// What is better where no bar says it.
    pub(crate) better: Better,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Times,
    Percent,
    Millis,
    Megabytes,
}

/// What a figure has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

impl Finding {
    pub(crate) fn new(id: impl Into<String>, what: impl Into<String>, unit: Unit, spread: Spread, bar: Bar) -> Self {
        let better = match bar {
            Bar::AtLeast(_) => Better::More,
            Bar::AtMost(_) => Better::Less,
        };
        Self { id: id.into(), what: what.into(), unit, spread, bar: Some(bar), better }
    }

    /// One that nobody has set a bar for.
    pub(crate) fn free(id: impl Into<String>, what: impl Into<String>, spread: Spread, better: Better) -> Self {
        Self { id: id.into(), what: what.into(), unit: Unit::Times, spread, bar: None, better }
    }

    /// Whether its bar is cleared; nothing where there is none.
    pub(crate) fn clears(&self) -> Option<bool> {
        self.bar.map(|bar| match bar {
            Bar::AtLeast(least) => self.spread.value >= least,
            Bar::AtMost(most) => self.spread.value <= most,
        })
    }

    /// Whether it is worse than before by more than both spreads.
    pub(crate) fn worse_than(&self, before: Spread) -> bool {
        match self.better {
            Better::More => self.spread.high < before.low,
            Better::Less => self.spread.low > before.high,
        }
    }

    /// Milliseconds are the machine's; a ratio is ours.
    pub(crate) fn is_ratio(&self) -> bool {
        match self.unit {
            Unit::Times | Unit::Percent => true,
            Unit::Millis | Unit::Megabytes => false,
        }
    }

    pub(crate) fn mark(&self) -> &'static str {
        match self.clears() {
            Some(true) => "✓",
            Some(false) => "✗",
            None => " ",
        }
    }

    pub(crate) fn value(&self) -> String {
        self.unit.show(self.spread.value)
    }

    /// Both ends of the spread.
    pub(crate) fn range(&self) -> String {
        let number = |value: f64| self.unit.number(value);
        format!("{}–{}", number(self.spread.low), number(self.spread.high))
    }

    pub(crate) fn wanted(&self) -> String {
        match self.bar {
            Some(Bar::AtLeast(least)) => format!("≥ {}", self.unit.show(least)),
            Some(Bar::AtMost(most)) => format!("≤ {}", self.unit.show(most)),
            None => String::new(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let Spread { value, low, high } = self.spread;
        json!({"id": self.id, "what": self.what, "unit": self.unit.to_string(), "value": value, "low": low, "high": high,
            "bar": self.wanted(), "clears": self.clears()})
    }
}

impl Unit {
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

impl fmt::Display for Unit {
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

    fn found(value: f64, bar: Bar) -> Finding {
        Finding::new("a/b", "a", Unit::Times, Spread { value, low: value - 0.25, high: value + 0.25 }, bar)
    }

    #[test]
    fn bars() {
        for (value, bar, mark, wanted) in [
            (3.5, Bar::AtLeast(3.5), "✓", "≥ 3.5×"),
            (3.4, Bar::AtLeast(3.5), "✗", "≥ 3.5×"),
            (1.05, Bar::AtMost(1.05), "✓", "≤ 1.05×"),
            (1.06, Bar::AtMost(1.05), "✗", "≤ 1.05×"),
        ] {
            let finding = found(value, bar);
            assert_eq!((finding.mark(), finding.wanted().as_str()), (mark, wanted));
        }
        assert_eq!(found(22.0, Bar::AtLeast(20.0)).wanted(), "≥ 20×");
        let free = Finding::free("a/b", "a", Spread { value: 3.0, low: 2.0, high: 4.0 }, Better::More);
        assert_eq!((free.mark(), free.wanted().as_str(), free.range().as_str()), (" ", "", "2.0–4.0"));
    }

    #[test]
    fn worse_is_beyond_both_spreads() {
        let before = |value: f64| Spread { value, low: value - 0.25, high: value + 0.25 };
        let more = found(3.0, Bar::AtLeast(1.0));
        assert_eq!([3.25, 3.75].map(|was| more.worse_than(before(was))), [false, true]);
        let less = found(3.0, Bar::AtMost(9.0));
        assert_eq!([2.75, 2.25].map(|was| less.worse_than(before(was))), [false, true]);
    }
}
