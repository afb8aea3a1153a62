//! One thing that is wrong with what a provider did: where, what, what it should be, and what to do about it.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Finding {
    pub(in super::super) severity: Severity,
    /// The line of stdout, counted from 1.
    pub(in super::super) line: Option<usize>,
    /// The member of the JSON object.
    pub(in super::super) field: Option<&'static str>,
    pub(in super::super) found: String,
    pub(in super::super) expected: &'static str,
    pub(in super::super) fix: &'static str,
    /// On how many further lines the same is wrong.
    pub(in super::super) again: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Severity {
    /// Allowed, or a matter of taste, but worth a look.
    Warn,
    /// Against the protocol.
    Fail,
}

impl Finding {
    pub(super) fn fail(found: impl Into<String>, expected: &'static str, fix: &'static str) -> Self {
        Self { severity: Severity::Fail, line: None, field: None, found: found.into(), expected, fix, again: 0 }
    }

    pub(super) fn warn(found: impl Into<String>, expected: &'static str, fix: &'static str) -> Self {
        Self { severity: Severity::Warn, ..Self::fail(found, expected, fix) }
    }

    pub(super) fn line(self, line: usize) -> Self {
        Self { line: Some(line), ..self }
    }

    pub(super) fn field(self, field: &'static str) -> Self {
        Self { field: Some(field), ..self }
    }

    /// The same rule broken at the same member; the line may be another.
    fn repeats(&self, other: &Self) -> bool {
        (self.severity, self.field, self.expected) == (other.severity, other.field, other.expected)
    }
}

impl fmt::Display for Finding {
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

/// A rule that is broken on every line is told once, with the first line of it.
pub(super) fn once_each(findings: Vec<Finding>) -> Vec<Finding> {
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        match kept.iter_mut().find(|earlier| earlier.repeats(&finding)) {
            Some(earlier) => earlier.again += 1,
            None => kept.push(finding),
        }
    }
    kept
}
