//! Times of one CLI in each variant, and the figures computed from them. Pure: the samples come from [`super::rounds`].

use serde_json::{Value, json};

use super::figure::{BenchFigure, BenchThreshold, BetterWhen, FigureUnit};
use super::samples::Samples;

/// Start of the CLI that serves a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchVariant {
    /// By hand, with the arguments that the gateway uses.
    Bare,
    /// By the gateway, for this turn.
    Cold,
    /// By the gateway, before the turn.
    Warm,
    /// By the gateway, for an earlier turn of the same session.
    Live,
}

impl BenchVariant {
    pub(crate) const ALL: [Self; 4] = [Self::Bare, Self::Cold, Self::Warm, Self::Live];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "by hand",
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Live => "in a session",
        }
    }
}

/// Samples of one variant.
#[derive(Debug, Default, Clone)]
pub(crate) struct VariantTimes {
    /// Seconds to the first token.
    pub(crate) first: Samples,
    /// Seconds to the end of the turn.
    pub(crate) total: Samples,
}

/// Samples of one CLI in all variants.
#[derive(Debug, Default, Clone)]
pub(crate) struct CliTimes {
    pub(crate) name: String,
    pub(crate) version: String,
    variants: [VariantTimes; 4],
}

/// Required speed-up of the first token against a run by hand, for a first turn and in a session.
const MIN_SPEED_UPS: [(&str, f64, Option<f64>); 5] = [
    ("claude", 3.5, Some(8.0)),
    ("codex", 2.0, None),
    ("gemini", 20.0, None),
    ("qwen", 2.5, Some(15.0)),
    ("opencode", 15.0, None),
];

/// Allowed ratio of a whole cold turn to a run by hand.
const MAX_COLD_RATIO: f64 = 1.05;

impl CliTimes {
    pub(crate) fn new(name: &str, version: String) -> Self {
        Self { name: name.to_owned(), version, variants: Default::default() }
    }

    pub(crate) fn of(&self, variant: BenchVariant) -> &VariantTimes {
        &self.variants[variant as usize]
    }

    pub(crate) fn push(&mut self, variant: BenchVariant, first: f64, total: f64) {
        let times = &mut self.variants[variant as usize];
        times.first.push(first);
        times.total.push(total);
    }

    /// Number of samples of each variant.
    pub(crate) fn rounds(&self) -> usize {
        self.of(BenchVariant::Bare).first.len()
    }

    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.version).trim_end().to_owned()
    }

    pub(crate) fn figures(&self) -> Vec<BenchFigure> {
        let thresholds = MIN_SPEED_UPS.iter().find(|(name, ..)| *name == self.name);
        let speed_up = |variant: BenchVariant, what: &str, threshold: Option<f64>| {
            let by_hand = &self.of(BenchVariant::Bare).first;
            let spread = by_hand.against(&self.of(variant).first, |by_hand, ours| by_hand / ours);
            let (id, what) = (format!("{}/{}", self.name, id(variant)), format!("{}: {what}", self.name));
            match threshold {
                Some(least) => BenchFigure::new(id, what, FigureUnit::Times, spread, BenchThreshold::AtLeast(least)),
                None => BenchFigure::without_threshold(id, what, spread, BetterWhen::Higher),
            }
        };
        let total = self
            .of(BenchVariant::Cold)
            .total
            .against(&self.of(BenchVariant::Bare).total, |cold, by_hand| cold / by_hand);
        let (cold_id, cold) = (format!("{}/cold", self.name), format!("{}: whole cold turn / by hand", self.name));
        vec![
            speed_up(BenchVariant::Warm, "first token of a first turn, speed-up", thresholds.map(|it| it.1)),
            speed_up(BenchVariant::Live, "first token in a session, speed-up", thresholds.and_then(|it| it.2)),
            match thresholds {
                Some(_) => {
                    BenchFigure::new(cold_id, cold, FigureUnit::Times, total, BenchThreshold::AtMost(MAX_COLD_RATIO))
                }
                // The fake agent takes so little time that a threshold on the ratio would be meaningless.
                None => BenchFigure::without_threshold(cold_id, cold, total, BetterWhen::Lower),
            },
        ]
    }

    pub(crate) fn json(&self) -> Value {
        let times = |variant| json!({"first": self.of(variant).first.json(), "total": self.of(variant).total.json()});
        let [bare, cold, warm, live] = BenchVariant::ALL.map(times);
        json!({"name": self.name, "version": self.version, "bare": bare, "cold": cold, "warm": warm, "live": live})
    }
}

fn id(variant: BenchVariant) -> &'static str {
    match variant {
        BenchVariant::Bare => "bare",
        BenchVariant::Cold => "cold",
        BenchVariant::Warm => "warm",
        BenchVariant::Live => "live",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A CLI that takes 1 s by hand and cold, and the given times warm and in a session.
    pub(crate) fn measured(name: &str, warm: f64, live: f64) -> CliTimes {
        let mut measured = CliTimes::new(name, "1.0".to_owned());
        for _ in 0..20 {
            for (variant, first) in BenchVariant::ALL.into_iter().zip([1.0, 1.0, warm, live]) {
                measured.push(variant, first, first * 1.5);
            }
        }
        measured
    }

    #[test]
    fn figures_are_marked_by_their_thresholds() {
        let shown = |measured: &CliTimes| -> Vec<String> {
            let figures = measured.figures();
            let lines = figures.iter().map(|it| format!("{} {} {} {}", it.mark(), it.id, it.value(), it.required()));
            lines.map(|line| line.trim().to_owned()).collect()
        };
        assert_eq!(
            shown(&measured("claude", 0.25, 0.2)),
            ["✓ claude/warm 4.0× ≥ 3.5×", "✗ claude/live 5.0× ≥ 8.0×", "✓ claude/cold 1.00× ≤ 1.05×"]
        );
        assert_eq!(shown(&measured("fake", 0.5, 0.25)), ["fake/warm 2.0×", "fake/live 4.0×", "fake/cold 1.00×"]);
    }
}
