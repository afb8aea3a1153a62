//! Results of the rounds, as text.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::finding::{AnswerFinding, AnswerFindingKind};
use super::plan::{AnswerKind, RoundPlan};

/// Progress of the client when the gateway was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientProgress {
    /// It had the complete answer.
    Complete,
    /// It had a 202, and no complete answer.
    Accepted,
    /// It had less.
    Cut,
}

impl ClientProgress {
    const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Accepted => "accepted",
            Self::Cut => "cut",
        }
    }
}

#[derive(Debug)]
pub(super) struct AnswerRound {
    pub(super) number: u32,
    pub(super) plan: RoundPlan,
    pub(super) progress: ClientProgress,
    /// Time from the last byte to the kill, in milliseconds. `None` if the last byte did not arrive.
    pub(super) killed_after: Option<f64>,
    pub(super) took: Duration,
    pub(super) findings: Vec<AnswerFinding>,
    /// Folder of a round with findings.
    pub(super) kept: Option<PathBuf>,
}

impl AnswerRound {
    /// Kill relative to the last byte, or to its predicted time if it did not arrive.
    pub(super) fn kill(&self) -> String {
        match self.killed_after {
            Some(millis) => format!("{millis:+.3} ms"),
            None => format!("~{:+.3} ms", self.plan.kill_micros as f64 / 1000.0),
        }
    }
}

impl fmt::Display for AnswerRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, plan, progress, took, .. } = self;
        let found = if self.findings.is_empty() { "✓".to_owned() } else { format!("✗ {}", self.findings.len()) };
        let (kind, form) = (plan.kind.name(), format!("{:?}", plan.form).to_lowercase());
        let (kill, progress, took) = (self.kill(), progress.name(), took.as_secs_f64());
        write!(f, "{number:>5}  {kind:<11} {form:<9} {kill:>12}  {progress:<9} {took:>6.1} s  {found}")
    }
}

/// Counts of rounds: a round with two wrong rows counts once.
#[derive(Debug, Default)]
pub(super) struct AnswerTable {
    by_kind: BTreeMap<AnswerKind, AnswerCounts>,
}

#[derive(Debug, Clone, Copy, Default)]
struct AnswerCounts {
    rounds: usize,
    complete: usize,
    accepted: usize,
    cut: usize,
    found: [usize; AnswerFindingKind::ALL.len()],
    with_findings: usize,
}

impl AnswerCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            rounds: self.rounds + other.rounds,
            complete: self.complete + other.complete,
            accepted: self.accepted + other.accepted,
            cut: self.cut + other.cut,
            found: std::array::from_fn(|index| self.found[index] + other.found[index]),
            with_findings: self.with_findings + other.with_findings,
        }
    }
}

impl AnswerTable {
    pub(super) const HEAD: &str = "round  kind        form              kill  client        took";

    pub(super) fn add(&mut self, round: &AnswerRound) {
        let progress = |progress| usize::from(round.progress == progress);
        let counts = AnswerCounts {
            rounds: 1,
            complete: progress(ClientProgress::Complete),
            accepted: progress(ClientProgress::Accepted),
            cut: progress(ClientProgress::Cut),
            found: AnswerFindingKind::ALL
                .map(|kind| usize::from(round.findings.iter().any(|finding| finding.kind == kind))),
            with_findings: usize::from(!round.findings.is_empty()),
        };
        let sum = self.by_kind.entry(round.plan.kind).or_default();
        *sum = sum.plus(counts);
    }

    /// Number of rounds with findings.
    pub(super) fn with_findings(&self) -> usize {
        self.total().with_findings
    }

    fn total(&self) -> AnswerCounts {
        self.by_kind.values().fold(AnswerCounts::default(), |sum, counts| sum.plus(*counts))
    }
}

impl fmt::Display for AnswerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<11} {:>6} {:>8} {:>8} {:>5}", "kind", "rounds", "complete", "accepted", "cut")?;
        AnswerFindingKind::ALL.iter().try_for_each(|kind| write!(f, "  {:>14}", kind.name()))?;
        writeln!(f)?;
        let total = self.total();
        let rows = self.by_kind.iter().map(|(kind, counts)| (kind.name(), counts));
        for (name, counts) in rows.chain([("total".to_owned(), &total)]) {
            let AnswerCounts { rounds, complete, accepted, cut, found, .. } = counts;
            write!(f, "{name:<11} {rounds:>6} {complete:>8} {accepted:>8} {cut:>5}")?;
            found.iter().try_for_each(|count| write!(f, "  {count:>14}"))?;
            writeln!(f)?;
        }
        let found = AnswerFindingKind::ALL.iter().zip(total.found);
        let found: Vec<String> = found.map(|(kind, count)| format!("{count} {}", kind.name())).collect();
        write!(f, "\ntorture: {} rounds killed at the answer, {}", total.rounds, found.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_with_two_findings_of_a_kind_counts_once() {
        let mut table = AnswerTable::default();
        let finding = || AnswerFindingKind::WrongRow.finding("x");
        for findings in [vec![finding(), finding()], vec![finding()], vec![]] {
            table.add(&AnswerRound {
                number: 1,
                plan: RoundPlan::draw(1, 0, Some(AnswerKind::Stream)),
                progress: ClientProgress::Complete,
                killed_after: Some(1.5),
                took: Duration::ZERO,
                findings,
                kept: None,
            });
        }
        let text = table.to_string();
        assert_eq!(table.with_findings(), 2);
        assert!(text.contains("3 rounds killed at the answer, 2 wrong rows, 0 contradictions, 0 lost"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("stream ")).count(), 1, "{text}");
    }
}
