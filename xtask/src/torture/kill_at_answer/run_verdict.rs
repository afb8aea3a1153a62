//! Compares the rows and logs of a request's runs with what its client received. Pure.

use serde_json::Value;

use super::finding::{AnswerFinding, AnswerFindingKind};
use super::world::AgentStart;

/// Knowledge of a client when the gateway was killed.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientKnowledge {
    /// The client has read the last byte of the answer.
    pub(super) complete: bool,
    pub(super) run: Option<String>,
    pub(super) session: Option<String>,
    /// The answer, if its form contains the text.
    pub(super) text: Option<String>,
}

/// A run after the restart.
#[derive(Debug, Clone)]
pub(super) struct RunAfterRestart {
    pub(super) id: String,
    /// State in the row. `None` if there is no row.
    pub(super) state: Option<String>,
    pub(super) session: Option<String>,
    /// Whether the list of runs contains it.
    pub(super) listed: bool,
    pub(super) log: LogAfterRestart,
}

/// The events of a run after the restart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LogAfterRestart {
    pub(super) end: LogEnd,
    /// All text of the events.
    pub(super) text: String,
    /// First event whose number is not the expected one.
    pub(super) gap: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum LogEnd {
    /// The log cannot be read to an end.
    #[default]
    Missing,
    Failed,
    Finished(String),
}

impl LogAfterRestart {
    pub(super) fn parse(frames: &[Value]) -> Self {
        let kind = |frame: &Value| frame["event"]["type"].as_str().unwrap_or_default().to_owned();
        let texts = frames.iter().filter(|frame| kind(frame) == "text");
        let last = frames.last().map(kind).unwrap_or_default();
        let content = frames.last().and_then(|frame| frame["event"]["content"].as_str());
        Self {
            end: match (last.as_str(), content) {
                ("finished", Some(content)) => LogEnd::Finished(content.to_owned()),
                ("failed", _) => LogEnd::Failed,
                _ => LogEnd::Missing,
            },
            text: texts.filter_map(|frame| frame["event"]["delta"].as_str()).collect(),
            gap: (0..).zip(frames).find(|(expected, frame)| frame["seq"] != *expected).map(|(expected, _)| expected),
        }
    }

    /// Whether the log says that the run has finished with this answer.
    fn has_answer(&self, text: &str) -> bool {
        self.end == LogEnd::Finished(text.to_owned()) && (self.text.is_empty() || self.text == text)
    }
}

/// Judges all runs of one request. `starts` are the starts of the fake agent for it.
pub(super) fn judge_runs(
    client: &ClientKnowledge,
    runs: &[RunAfterRestart],
    starts: &[AgentStart],
) -> Vec<AnswerFinding> {
    let mut findings = Vec::new();
    if client.complete && starts.is_empty() {
        findings.push(AnswerFindingKind::Broken.finding("the fake agent has recorded no start for a complete answer"));
    }
    if runs.len() > 1 || starts.len() > 1 {
        let ids: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
        let what = format!("one request, {} runs {ids:?}, {} starts of the CLI", runs.len(), starts.len());
        findings.push(AnswerFindingKind::RanTwice.finding(what));
    }
    if client.complete && client.run.is_none() {
        findings.push(AnswerFindingKind::WrongRow.finding("a complete answer names no run"));
    }
    for run in runs {
        let known = client.run.as_ref() == Some(&run.id);
        let (kind, problem) = if known && client.complete {
            (AnswerFindingKind::WrongRow, problem_of_answered(client, run, starts))
        } else if run.state.as_deref() == Some("interrupted") && matches!(run.log.end, LogEnd::Finished(_)) {
            (AnswerFindingKind::Contradiction, Some(format!("interrupted, but the log ends as {:?}", run.log.end)))
        } else {
            (AnswerFindingKind::WrongRow, problem_of_unanswered(run, known, starts))
        };
        findings.extend(problem.map(|problem| kind.finding(format!("run {}: {problem}", run.id))));
    }
    findings
}

/// Problem of a run whose client has the complete answer.
fn problem_of_answered(client: &ClientKnowledge, run: &RunAfterRestart, starts: &[AgentStart]) -> Option<String> {
    let Some(state) = run.state.as_deref() else { return Some("missing, but its answer is complete".to_owned()) };
    if state != "finished" {
        return Some(format!("{state}, but its answer is complete; its log ends as {:?}", run.log.end));
    }
    let answer = client.text.as_deref().or_else(|| starts.last().map(|start| start.answer.as_str()))?;
    if starts.last().is_some_and(|start| start.answer != answer) {
        return Some(format!("the client received {answer:?}, the CLI has printed {starts:?}"));
    }
    if let Some(gap) = run.log.gap {
        return Some(format!("the log misses event {gap}"));
    }
    if !run.log.has_answer(answer) {
        return Some(format!("the client received {answer:?}, the log has {:?}", run.log));
    }
    if client.session.is_some() && client.session != run.session {
        return Some(format!("the client has session {:?}, the row has {:?}", client.session, run.session));
    }
    (!run.listed).then(|| "not in the list of runs".to_owned())
}

/// Problem of a run whose client has no complete answer. A run that the client does not know may be missing.
fn problem_of_unanswered(run: &RunAfterRestart, known: bool, starts: &[AgentStart]) -> Option<String> {
    match run.state.as_deref() {
        None if known => Some("missing, but the client knows its id".to_owned()),
        None => None,
        Some("interrupted") => (run.log.end != LogEnd::Failed || run.log.gap.is_some())
            .then(|| format!("interrupted, but the log does not end with a failure: {:?}", run.log)),
        Some("finished") => (!starts.iter().any(|start| run.log.has_answer(&start.answer)) || run.log.gap.is_some())
            .then(|| format!("finished with another text: the log has {:?}, the CLI has printed {starts:?}", run.log)),
        Some(state) => Some(format!("{state}, but its gateway was killed")),
    }
}

#[cfg(test)]
#[path = "run_verdict_tests.rs"]
mod tests;
