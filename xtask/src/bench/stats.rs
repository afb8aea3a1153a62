//! Samples and what they come to.

/// Times in seconds.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    samples: Vec<f64>,
}

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
}

pub(crate) fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let mut stats = Stats::default();
        for n in (0..101).rev() {
            stats.push(f64::from(n));
        }
        assert_eq!((stats.quantile(0.5), stats.quantile(0.99), stats.quantile(1.0)), (50.0, 99.0, 100.0));
        assert!(Stats::default().quantile(0.5).is_nan());
    }
}
