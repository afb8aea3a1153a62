//! What people read: a line for each case, and under it what is wrong, where, and what to do.

use std::fmt::Write;
use std::io;
use std::time::Duration;

use super::judge::{Finding, Severity};
use crate::setup::say;

/// The cases so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    passed: usize,
    warned: usize,
    failed: usize,
    skipped: usize,
    /// The remedies that were shown: once is enough.
    remedies: Vec<&'static str>,
}

impl Report {
    /// Shows a case that ran. The end of stderr is shown when the provider failed without a word in `error`: it may say why.
    pub(super) fn case(&mut self, name: &str, took: Duration, findings: &[Finding], stderr: &str) -> io::Result<()> {
        let (word, count) = match findings.iter().map(|finding| finding.severity).max() {
            None => ("PASS", &mut self.passed),
            Some(Severity::Warn) => ("WARN", &mut self.warned),
            Some(Severity::Fail) => ("FAIL", &mut self.failed),
        };
        *count += 1;
        let mut text = format!("{word}  {name:40} {:>6} ms", took.as_millis());
        for finding in findings {
            let mark = if finding.severity == Severity::Fail { "✗" } else { "!" };
            let _a_string_takes_all = write!(text, "\n      {mark} {finding}");
            if !self.remedies.contains(&finding.fix) {
                self.remedies.push(finding.fix);
                let _a_string_takes_all = write!(text, "\n        fix: {}", finding.fix);
            }
        }
        let told = findings.iter().any(|finding| finding.field == Some("error"));
        if word == "FAIL" && !told {
            for line in last_lines(stderr) {
                let _a_string_takes_all = write!(text, "\n        stderr: {line}");
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

    /// The last line: the verdict and the counts.
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
