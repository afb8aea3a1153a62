//! Statistics of a libFuzzer run, as a row of a table.

use std::fmt;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct FuzzReport {
    target: String,
    inputs: u64,
    per_second: u64,
    /// Edges of the program that some input covered.
    covered: u64,
    /// Inputs in the corpus.
    corpus: u64,
    peak_mb: u64,
}

impl FuzzReport {
    pub(super) const HEAD: &str = "target           inputs     inputs/s   covered    corpus        MB";

    /// Parses the output of libFuzzer; `None` if it ended before it printed statistics.
    pub(super) fn read(target: &str, output: &str) -> Option<Self> {
        let stat = |name: &str| {
            let line = output.lines().rev().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name))?;
            line.trim_start_matches(':').trim().parse::<u64>().ok()
        };
        // `#2097152	pulse  cov: 1514 ft: 6271 corp: 1290/155Kb lim: 16384 exec/s: 99864 rss: 551Mb`
        let last = output.lines().rev().find(|line| line.starts_with('#') && line.contains(" cov: "))?;
        let after = |name: &str| {
            let rest = last.split_once(name)?.1.trim_start();
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
        };
        Some(Self {
            target: target.to_owned(),
            inputs: stat("number_of_executed_units")?,
            per_second: stat("average_exec_per_sec")?,
            covered: after(" cov:")?,
            corpus: after(" corp:")?,
            peak_mb: stat("peak_rss_mb")?,
        })
    }
}

impl fmt::Display for FuzzReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, inputs, per_second, covered, corpus, peak_mb } = self;
        write!(f, "{target:<12} {inputs:>10} {per_second:>12} {covered:>9} {corpus:>9} {peak_mb:>9}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_come_from_the_last_lines() {
        let output = "#2\tINITED cov: 1 ft: 2 corp: 1/1b exec/s: 0 rss: 30Mb\n\
            #500\tDONE   cov: 77 ft: 99 corp: 12/1Kb lim: 100 exec/s: 250 rss: 31Mb\n\
            stat::number_of_executed_units: 500\nstat::average_exec_per_sec:     250\nstat::peak_rss_mb:   31\n";
        let report = FuzzReport::read("sse", output).unwrap();
        let expected =
            FuzzReport { target: "sse".to_owned(), inputs: 500, per_second: 250, covered: 77, corpus: 12, peak_mb: 31 };
        assert_eq!(report, expected);
        assert_eq!(FuzzReport::read("sse", "it crashed"), None);
    }
}
