//! Samples and what they come to.

use serde_json::{Value, json};

/// What was measured, in seconds unless somebody says otherwise.
#[derive(Debug, Default, Clone)]
pub(crate) struct Stats {
    samples: Vec<f64>,
}

/// A figure, and between which others it would likely be if all were measured again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// How often two sets of samples are drawn anew to see how far a figure moves.
const DRAWS: usize = 400;

/// The same draws in each run: a spread is not to change while the samples do not.
const SEED: u64 = 8;

impl Stats {
    pub(crate) fn push(&mut self, seconds: f64) {
        self.samples.push(seconds);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.samples.extend(other.samples);
    }

    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let index = ((sorted.len().saturating_sub(1)) as f64 * quantile).round() as usize;
        sorted.get(index).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The median of each compared: the figure, and where nine in ten of its like would be.
    pub(crate) fn against(&self, other: &Self, compare: fn(f64, f64) -> f64) -> Spread {
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut drawn = Self::default();
        for _ in 0..DRAWS {
            let (left, right) = (self.drawn(&mut random), other.drawn(&mut random));
            drawn.push(compare(left.median(), right.median()));
        }
        let value = compare(self.median(), other.median());
        Spread { value, low: drawn.quantile(0.05), high: drawn.quantile(0.95) }
    }

    /// As many samples of these, each as likely as any.
    fn drawn(&self, random: &mut fastrand::Rng) -> Self {
        Self { samples: (0..self.len()).filter_map(|_| random.choice(&self.samples).copied()).collect() }
    }

    pub(crate) fn json(&self) -> Value {
        json!({"n": self.len(), "p10": self.quantile(0.1), "p50": self.median(), "p90": self.quantile(0.9)})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: impl IntoIterator<Item = f64>) -> Stats {
        Stats { samples: samples.into_iter().collect() }
    }

    #[test]
    fn quantiles() {
        let stats = of((0..101).rev().map(f64::from));
        assert_eq!((stats.median(), stats.quantile(0.99), stats.quantile(1.0)), (50.0, 99.0, 100.0));
        assert!(Stats::default().quantile(0.5).is_nan());
    }

    #[test]
    fn a_comparison_has_a_spread_that_holds_it() {
        let (slow, quick) = (of((90..=110).map(f64::from)), of((19..=21).map(f64::from)));
        let ratio = slow.against(&quick, |slow, quick| slow / quick);
        assert_eq!(ratio.value, 5.0);
        assert!(4.5 < ratio.low && ratio.low < 5.0 && 5.0 < ratio.high && ratio.high < 5.7, "{ratio:?}");
        assert_eq!(ratio, slow.against(&quick, |slow, quick| slow / quick), "the same again");
        let sure = of([2.0; 20]).against(&of([1.0; 20]), |left, right| left - right);
        assert_eq!(sure, Spread { value: 1.0, low: 1.0, high: 1.0 });
    }
}
