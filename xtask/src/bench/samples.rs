//! Samples of a measurement, their quantiles, and comparisons with confidence intervals.

use serde_json::{Value, json};

/// Measured values, in seconds unless documented otherwise.
#[derive(Debug, Default, Clone)]
pub(crate) struct Samples {
    samples: Vec<f64>,
}

/// A value and its 90 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Number of bootstrap resamples.
const RESAMPLES: usize = 400;

/// Seed of the bootstrap: equal samples give an equal spread.
const SEED: u64 = 8;

impl Samples {
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

    /// Compares the medians of two sets of samples. The spread is a 90 % bootstrap confidence interval.
    pub(crate) fn against(&self, other: &Self, compare: fn(f64, f64) -> f64) -> Spread {
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut resampled = Self::default();
        for _ in 0..RESAMPLES {
            let (left, right) = (self.resample(&mut random), other.resample(&mut random));
            resampled.push(compare(left.median(), right.median()));
        }
        let value = compare(self.median(), other.median());
        Spread { value, low: resampled.quantile(0.05), high: resampled.quantile(0.95) }
    }

    /// Draws as many samples as there are, with replacement.
    fn resample(&self, random: &mut fastrand::Rng) -> Self {
        Self { samples: (0..self.len()).filter_map(|_| random.choice(&self.samples).copied()).collect() }
    }

    pub(crate) fn json(&self) -> Value {
        json!({"n": self.len(), "p10": self.quantile(0.1), "p50": self.median(), "p90": self.quantile(0.9)})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: impl IntoIterator<Item = f64>) -> Samples {
        Samples { samples: samples.into_iter().collect() }
    }

    #[test]
    fn quantile_is_the_nearest_sample_and_nan_without_samples() {
        let samples = of((0..101).rev().map(f64::from));
        assert_eq!((samples.median(), samples.quantile(0.99), samples.quantile(1.0)), (50.0, 99.0, 100.0));
        assert!(Samples::default().quantile(0.5).is_nan());
    }

    #[test]
    fn spread_contains_the_ratio_of_the_medians() {
        let (slow, quick) = (of((90..=110).map(f64::from)), of((19..=21).map(f64::from)));
        let ratio = slow.against(&quick, |slow, quick| slow / quick);
        assert_eq!(ratio.value, 5.0);
        assert!(4.5 < ratio.low && ratio.low < 5.0 && 5.0 < ratio.high && ratio.high < 5.7, "{ratio:?}");
        assert_eq!(ratio, slow.against(&quick, |slow, quick| slow / quick), "the spread is deterministic");
        let sure = of([2.0; 20]).against(&of([1.0; 20]), |left, right| left - right);
        assert_eq!(sure, Spread { value: 1.0, low: 1.0, high: 1.0 });
    }
}
