//! What a fuzzer says it did, as a line of a table.

use std::fmt;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Report {
    target: String,
    inputs: u64,
    per_second: u64,
    /// Edges of the program that some input reached.
    reached: u64,
    /// Inputs that were worth keeping.
    kept: u64,
    megabytes: u64,
}

impl Report {
    pub(super) const HEAD: &str = "target           inputs     a second   reached      kept        MB";

    /// None if it ended before it could say anything.
    pub(super) fn read(target: &str, said: &str) -> Option<Self> {
        let stat = |name: &str| {
            let line = said.lines().rev().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name))?;
            line.trim_start_matches(':').trim().parse::<u64>().ok()
        };
        // `#2097152	pulse  cov: 1514 ft: 6271 corp: 1290/155Kb lim: 16384 exec/s: 99864 rss: 551Mb`
        let last = said.lines().rev().find(|line| line.starts_with('#') && line.contains(" cov: "))?;
        let after = |name: &str| {
            let rest = last.split_once(name)?.1.trim_start();
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
        };
        Some(Self {
            target: target.to_owned(),
            inputs: stat("number_of_executed_units")?,
            per_second: stat("average_exec_per_sec")?,
            reached: after(" cov:")?,
            kept: after(" corp:")?,
            megabytes: stat("peak_rss_mb")?,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, inputs, per_second, reached, kept, megabytes } = self;
        write!(f, "{target:<12} {inputs:>10} {per_second:>12} {reached:>9} {kept:>9} {megabytes:>9}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_what_counts() {
        let said = "#2\tINITED cov: 1 ft: 2 corp: 1/1b exec/s: 0 rss: 30Mb\n\
            #500\tDONE   cov: 77 ft: 99 corp: 12/1Kb lim: 100 exec/s: 250 rss: 31Mb\n\
            stat::number_of_executed_units: 500\nstat::average_exec_per_sec:     250\nstat::peak_rss_mb:   31\n";
        let report = Report::read("sse", said).unwrap();
        let expected =
            Report { target: "sse".to_owned(), inputs: 500, per_second: 250, reached: 77, kept: 12, megabytes: 31 };
        assert_eq!(report, expected);
        assert_eq!(Report::read("sse", "it crashed"), None);
    }
}
