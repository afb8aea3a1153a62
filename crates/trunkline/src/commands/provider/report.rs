//! Output of the check: a line per case, and below it each finding with its position and how to fix it.

use std::fmt::Write;
use std::io;
use std::time::Duration;

use super::judge::{FindingSeverity, ProtocolFinding};
use crate::output::say;

/// Counts of the cases so far.
#[derive(Debug, Default)]
pub(super) struct CheckReport {
    passed: usize,
    warned: usize,
    failed: usize,
    skipped: usize,
    /// Fixes that were shown already: each is shown once.
    shown_fixes: Vec<&'static str>,
}

impl CheckReport {
    /// Prints a case. If it failed without `error`, the end of stderr is printed, as it may have the reason.
    pub(super) fn case(
        &mut self,
        name: &str,
        took: Duration,
        findings: &[ProtocolFinding],
        stderr: &str,
    ) -> io::Result<()> {
        let (word, count) = match findings.iter().map(|finding| finding.severity).max() {
            None => ("PASS", &mut self.passed),
            Some(FindingSeverity::Warn) => ("WARN", &mut self.warned),
            Some(FindingSeverity::Fail) => ("FAIL", &mut self.failed),
        };
        *count += 1;
        let mut text = format!("{word}  {name:40} {:>6} ms", took.as_millis());
        for finding in findings {
            let mark = if finding.severity == FindingSeverity::Fail { "✗" } else { "!" };
            let _ = write!(text, "\n      {mark} {finding}");
            if !self.shown_fixes.contains(&finding.fix) {
                self.shown_fixes.push(finding.fix);
                let _ = write!(text, "\n        fix: {}", finding.fix);
            }
        }
        let has_error = findings.iter().any(|finding| finding.field == Some("error"));
        if word == "FAIL" && !has_error {
            for line in last_lines(stderr) {
                let _ = write!(text, "\n        stderr: {line}");
            }
        }
        say(text)
    }

    pub(super) fn skipped(&mut self, name: &str) -> io::Result<()> {
        self.skipped += 1;
        say(format!("SKIP  {name}"))
    }

    pub(super) fn conforms(&self) -> bool {
        self.failed == 0 && self.skipped == 0
    }

    /// Prints the last line: the verdict and the counts.
    pub(super) fn end(&self) -> io::Result<()> {
        let verdict = if self.conforms() { "conforms" } else { "does not conform" };
        let skipped = if self.skipped > 0 { format!(", {} skipped", self.skipped) } else { String::new() };
        say(format!(
            "\n{verdict}: {} passed, {} with warnings, {} failed{skipped}",
            self.passed, self.warned, self.failed
        ))
    }
}

fn last_lines(stderr: &str) -> Vec<String> {
    let stderr = trunkline_core::ansi::strip(stderr);
    let mut lines: Vec<String> =
        stderr.lines().rev().filter(|line| !line.trim().is_empty()).take(3).map(shortened).collect();
    lines.reverse();
    lines
}

fn shortened(line: &str) -> String {
    line.trim().chars().take(160).collect()
}
