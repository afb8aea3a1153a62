//! Promises that a gateway did not keep.

use std::fmt;

/// A problem that a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AnswerFinding {
    pub(super) kind: AnswerFindingKind,
    pub(super) what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AnswerFindingKind {
    /// The row or the log of a run contradicts what its client received.
    WrongRow,
    /// The row of a run contradicts its log, and the client had received too little to tell which one is right.
    Contradiction,
    /// A session that a client got with a complete answer is not resumed.
    LostSession,
    /// One request was run twice.
    RanTwice,
    /// The CLI was asked to resume a conversation by an id that is not its own, or the answer names a wrong one.
    IdConfused,
    /// The round could not be carried out, so that nothing is known.
    Broken,
}

impl AnswerFindingKind {
    pub(super) const ALL: [Self; 6] =
        [Self::WrongRow, Self::Contradiction, Self::LostSession, Self::RanTwice, Self::IdConfused, Self::Broken];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::WrongRow => "wrong rows",
            Self::Contradiction => "contradictions",
            Self::LostSession => "lost sessions",
            Self::RanTwice => "ran twice",
            Self::IdConfused => "ids confused",
            Self::Broken => "broken",
        }
    }

    pub(super) fn finding(self, what: impl Into<String>) -> AnswerFinding {
        AnswerFinding { kind: self, what: what.into() }
    }
}

impl fmt::Display for AnswerFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.what)
    }
}
