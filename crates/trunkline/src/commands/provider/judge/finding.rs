//! A finding: what is wrong, where, what was expected, and how to fix it.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProtocolFinding {
    pub(crate) severity: FindingSeverity,
    /// The line of stdout, counted from 1.
    pub(crate) line: Option<usize>,
    /// The member of the JSON object.
    pub(crate) field: Option<&'static str>,
    pub(crate) found: String,
    pub(crate) expected: &'static str,
    pub(crate) fix: &'static str,
    /// Number of further lines with the same finding.
    pub(crate) again: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FindingSeverity {
    /// Allowed, but worth checking.
    Warn,
    /// A violation of the protocol.
    Fail,
}

impl ProtocolFinding {
    pub(super) fn fail(found: impl Into<String>, expected: &'static str, fix: &'static str) -> Self {
        Self { severity: FindingSeverity::Fail, line: None, field: None, found: found.into(), expected, fix, again: 0 }
    }

    pub(super) fn warn(found: impl Into<String>, expected: &'static str, fix: &'static str) -> Self {
        Self { severity: FindingSeverity::Warn, ..Self::fail(found, expected, fix) }
    }

    pub(super) fn line(self, line: usize) -> Self {
        Self { line: Some(line), ..self }
    }

    pub(super) fn field(self, field: &'static str) -> Self {
        Self { field: Some(field), ..self }
    }

    /// Whether it is the same rule and member, perhaps on another line.
    fn repeats(&self, other: &Self) -> bool {
        (self.severity, self.field, self.expected) == (other.severity, other.field, other.expected)
    }
}

impl fmt::Display for ProtocolFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.field) {
            (Some(line), Some(field)) => write!(f, "stdout line {line}, {field}: ")?,
            (Some(line), None) => write!(f, "stdout line {line}: ")?,
            (None, Some(field)) => write!(f, "{field}: ")?,
            (None, None) => {}
        }
        write!(f, "{}; expected {}", self.found, self.expected)?;
        match self.again {
            0 => Ok(()),
            1 => f.write_str(" (and once more)"),
            times => write!(f, " (and {times} times more)"),
        }
    }
}

/// Merges findings that repeat on several lines into the first one.
pub(super) fn merge_repeated(findings: Vec<ProtocolFinding>) -> Vec<ProtocolFinding> {
    let mut kept: Vec<ProtocolFinding> = Vec::new();
    for finding in findings {
        match kept.iter_mut().find(|earlier| earlier.repeats(&finding)) {
            Some(earlier) => earlier.again += 1,
            None => kept.push(finding),
        }
    }
    kept
}
