//! The rounds, for people.

use std::fmt;
use std::time::Duration;

use super::check::{Finding, Kind};
use super::fault::Fault;
use super::load::{End, Seen};

#[derive(Debug)]
pub(super) struct Round {
    number: u32,
    faults: String,
    answered: usize,
    failed: usize,
    refused: usize,
    cut: usize,
    left: usize,
    words: usize,
    took: Duration,
    pub(super) findings: Vec<Finding>,
}

impl Round {
    pub(super) fn new(number: u32, faults: &[Fault], seen: &[Seen], findings: Vec<Finding>, took: Duration) -> Self {
        let count = |end: End| seen.iter().filter(|client| client.end == end).count();
        Self {
            number,
            faults: faults.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(", "),
            answered: count(End::Answered),
            failed: count(End::Failed),
            refused: count(End::Refused),
            cut: count(End::Cut) + count(End::Hung),
            left: count(End::Left),
            words: seen.iter().flat_map(|client| &client.words).map(Vec::len).sum(),
            took,
            findings,
        }
    }

    fn counts(&self) -> [usize; 6] {
        [self.answered, self.failed, self.refused, self.cut, self.left, self.words]
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5}  {:<32}", self.number, self.faults)?;
        self.counts().iter().try_for_each(|count| write!(f, " {count:>8}"))?;
        let found = if self.findings.is_empty() { "✓".to_owned() } else { format!("✗ {}", self.findings.len()) };
        write!(f, " {:>6.1} s  {found}", self.took.as_secs_f64())
    }
}

#[derive(Debug, Default)]
pub(super) struct Table(Vec<Round>);

impl Table {
    pub(super) const HEAD: &str =
        "round  faults                           answered   failed  refused      cut     left    words     took";

    pub(super) fn add(&mut self, round: Round) {
        self.0.push(round);
    }

    pub(super) fn findings(&self) -> usize {
        self.0.iter().map(|round| round.findings.len()).sum()
    }

    fn found(&self, kind: Kind) -> usize {
        self.0.iter().flat_map(|round| &round.findings).filter(|finding| finding.kind == kind).count()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |index: usize| self.0.iter().map(|round| round.counts()[index]).sum::<usize>();
        write!(f, "{:>5}  {:<32}", self.0.len(), "in all")?;
        (0..6).try_for_each(|index| write!(f, " {:>8}", sum(index)))?;
        writeln!(f)?;
        let found: Vec<String> =
            Kind::ALL.into_iter().map(|kind| format!("{} {}", self.found(kind), kind.name())).collect();
        write!(f, "\ntorture: {} rounds, {}", self.0.len(), found.join(", "))
    }
}
