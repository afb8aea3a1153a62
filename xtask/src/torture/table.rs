//! Results of the rounds, as text.

use std::fmt;
use std::time::Duration;

use super::check::{TortureFinding, TortureFindingKind};
use super::fault::TortureFault;
use super::load::{ClientEnd, ClientRecord};

#[derive(Debug)]
pub(super) struct TortureRound {
    number: u32,
    faults: String,
    answered: usize,
    failed: usize,
    refused: usize,
    cut: usize,
    left: usize,
    words: usize,
    took: Duration,
    pub(super) findings: Vec<TortureFinding>,
}

impl TortureRound {
    pub(super) fn new(
        number: u32,
        faults: &[TortureFault],
        clients: &[ClientRecord],
        findings: Vec<TortureFinding>,
        took: Duration,
    ) -> Self {
        let count = |end: ClientEnd| clients.iter().filter(|client| client.end == end).count();
        Self {
            number,
            faults: faults.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(", "),
            answered: count(ClientEnd::Answered),
            failed: count(ClientEnd::Failed),
            refused: count(ClientEnd::Refused),
            cut: count(ClientEnd::Cut) + count(ClientEnd::Hung),
            left: count(ClientEnd::Left),
            words: clients.iter().flat_map(|client| &client.words).map(Vec::len).sum(),
            took,
            findings,
        }
    }

    fn counts(&self) -> [usize; 6] {
        [self.answered, self.failed, self.refused, self.cut, self.left, self.words]
    }
}

impl fmt::Display for TortureRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5}  {:<32}", self.number, self.faults)?;
        self.counts().iter().try_for_each(|count| write!(f, " {count:>8}"))?;
        let found = if self.findings.is_empty() { "✓".to_owned() } else { format!("✗ {}", self.findings.len()) };
        write!(f, " {:>6.1} s  {found}", self.took.as_secs_f64())
    }
}

#[derive(Debug, Default)]
pub(super) struct TortureTable(Vec<TortureRound>);

impl TortureTable {
    pub(super) const HEAD: &str =
        "round  faults                           answered   failed  refused      cut     left    words     took";

    pub(super) fn add(&mut self, round: TortureRound) {
        self.0.push(round);
    }

    pub(super) fn findings(&self) -> usize {
        self.0.iter().map(|round| round.findings.len()).sum()
    }

    fn found(&self, kind: TortureFindingKind) -> usize {
        self.0.iter().flat_map(|round| &round.findings).filter(|finding| finding.kind == kind).count()
    }
}

impl fmt::Display for TortureTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |index: usize| self.0.iter().map(|round| round.counts()[index]).sum::<usize>();
        write!(f, "{:>5}  {:<32}", self.0.len(), "total")?;
        (0..6).try_for_each(|index| write!(f, " {:>8}", sum(index)))?;
        writeln!(f)?;
        let found: Vec<String> =
            TortureFindingKind::ALL.into_iter().map(|kind| format!("{} {}", self.found(kind), kind.name())).collect();
        write!(f, "\ntorture: {} rounds, {}", self.0.len(), found.join(", "))
    }
}
