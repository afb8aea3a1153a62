//! Ratios of an earlier run (`benches/baseline.json`), and regressions against them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::figure::BenchFigure;
use super::samples::Spread;

/// Ratios by the id of their figure. Milliseconds and megabytes depend on the machine and are left out.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Baseline(BTreeMap<String, Spread>);

impl Baseline {
    pub(crate) fn of(figures: &[BenchFigure]) -> Self {
        let ratios = figures.iter().filter(|figure| figure.is_ratio() && figure.spread.value.is_finite());
        Self(ratios.map(|figure| (figure.id.clone(), figure.spread)).collect())
    }

    pub(crate) fn read(text: &str) -> Result<Self> {
        let file: BTreeMap<String, Value> = serde_json::from_str(text)?;
        let spread = |(id, value): (String, Value)| {
            let number = |name: &str| value[name].as_f64().with_context(|| format!("{id} has no {name}"));
            let spread = Spread { value: number("ratio")?, low: number("low")?, high: number("high")? };
            Ok((id, spread))
        };
        Ok(Self(file.into_iter().map(spread).collect::<Result<_>>()?))
    }

    /// This baseline with the measured ratios in place of the old ones. Ratios that were not measured stay.
    pub(crate) fn updated(mut self, measured: Self) -> Self {
        self.0.extend(measured.0);
        self
    }

    pub(crate) fn text(&self) -> String {
        let rounded = |number: f64| (number * 1000.0).round() / 1000.0;
        let entry = |(id, spread): (&String, &Spread)| {
            let [ratio, low, high] = [spread.value, spread.low, spread.high].map(rounded);
            (id.clone(), json!({"ratio": ratio, "low": low, "high": high}))
        };
        let file: serde_json::Map<String, Value> = self.0.iter().map(entry).collect();
        format!("{:#}\n", Value::Object(file))
    }

    /// A line for each figure that is worse than in the baseline.
    pub(crate) fn regressions(&self, figures: &[BenchFigure]) -> Vec<String> {
        let lines = figures.iter().filter_map(|figure| {
            let before = *self.0.get(&figure.id)?;
            let old = BenchFigure { spread: before, ..figure.clone() };
            figure.worse_than(before).then(|| {
                let (now, then) = (figure.value(), old.value());
                format!("{}: {now} ({}), was {then} ({})", figure.what, figure.range(), old.range())
            })
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::{BenchThreshold, FigureUnit};
    use crate::bench::variants::tests::measured;

    #[test]
    fn baseline_is_unchanged_after_writing_and_reading() {
        let figures = measured("claude", 0.25, 0.125).figures();
        let baseline = Baseline::of(&figures);
        assert_eq!(Baseline::read(&baseline.text()).unwrap(), baseline);
        assert!(Baseline::read("{\"a\": {}}").is_err());
    }

    #[test]
    fn regression_is_reported_when_a_ratio_is_worse() {
        let baseline = Baseline::of(&measured("claude", 0.25, 0.125).figures());
        assert_eq!(
            baseline.regressions(&measured("claude", 0.25, 0.1).figures()),
            [""; 0],
            "a better ratio is no regression"
        );
        let worse = baseline.regressions(&measured("claude", 0.5, 0.125).figures());
        assert_eq!(worse, ["claude: first token of a first turn, speed-up: 2.0× (2.0–2.0), was 4.0× (4.0–4.0)"]);
        assert_eq!(
            baseline.regressions(&measured("gemini", 0.9, 0.9).figures()),
            [""; 0],
            "there is no baseline for gemini"
        );
    }

    #[test]
    fn update_skips_milliseconds_and_keeps_ratios_that_were_not_measured() {
        let spread = Spread { value: 1.0, low: 1.0, high: 1.0 };
        let of = |id: &str, unit| Baseline::of(&[BenchFigure::new(id, "a", unit, spread, BenchThreshold::AtMost(2.0))]);
        assert_eq!(of("a", FigureUnit::Millis), Baseline::default());
        let both = of("a", FigureUnit::Percent).updated(of("b", FigureUnit::Times));
        assert_eq!(both.0.keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}
