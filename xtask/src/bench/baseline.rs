//! What the ratios were when somebody last wrote them down (`benches/baseline.json`), and whether they are worse now.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::finding::Finding;
use super::stats::Spread;

/// Ratios by their id. No milliseconds: they are the machine's.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Baseline(BTreeMap<String, Spread>);

impl Baseline {
    pub(crate) fn of(findings: &[Finding]) -> Self {
        let ratios = findings.iter().filter(|finding| finding.is_ratio() && finding.spread.value.is_finite());
        Self(ratios.map(|finding| (finding.id.clone(), finding.spread)).collect())
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

    /// As it is kept: what was measured, over what is not measured now.
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

    /// A line for each finding that is worse than it was.
    pub(crate) fn regressions(&self, findings: &[Finding]) -> Vec<String> {
        let worse = findings.iter().filter_map(|finding| {
            let before = *self.0.get(&finding.id)?;
            let was = Finding { spread: before, ..finding.clone() };
            finding.worse_than(before).then(|| {
                let (now, then) = (finding.value(), was.value());
                format!("{}: {now} ({}), was {then} ({})", finding.what, finding.range(), was.range())
            })
        });
        worse.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::finding::{Bar, Unit};
    use crate::bench::ways::tests::measured;

    #[test]
    fn it_is_read_as_it_was_written() {
        let findings = measured("claude", 0.25, 0.125).findings();
        let baseline = Baseline::of(&findings);
        assert_eq!(Baseline::read(&baseline.text()).unwrap(), baseline);
        assert!(Baseline::read("{\"a\": {}}").is_err());
    }

    #[test]
    fn what_became_worse_is_said() {
        let baseline = Baseline::of(&measured("claude", 0.25, 0.125).findings());
        assert_eq!(baseline.regressions(&measured("claude", 0.25, 0.1).findings()), [""; 0], "one became better");
        let worse = baseline.regressions(&measured("claude", 0.5, 0.125).findings());
        assert_eq!(worse, ["claude: first token of a first turn, earlier by: 2.0× (2.0–2.0), was 4.0× (4.0–4.0)"]);
        assert_eq!(baseline.regressions(&measured("gemini", 0.9, 0.9).findings()), [""; 0], "nobody knows what it was");
    }

    #[test]
    fn milliseconds_are_not_kept_and_what_is_not_measured_stays() {
        let spread = Spread { value: 1.0, low: 1.0, high: 1.0 };
        let of = |id: &str, unit| Baseline::of(&[Finding::new(id, "a", unit, spread, Bar::AtMost(2.0))]);
        assert_eq!(of("a", Unit::Millis), Baseline::default());
        let both = of("a", Unit::Percent).updated(of("b", Unit::Times));
        assert_eq!(both.0.keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}
