//! Judges requests after the restart: the same idempotency key again, and the next turn of a session. Pure.

use super::finding::{AnswerFinding, AnswerFindingKind};
use super::received::Received;
use super::run_verdict::{ClientKnowledge, RunAfterRestart};
use super::world::AgentStart;

/// Length of an error in a finding.
const MAX_ERROR_CHARS: usize = 150;

/// Judges a request that was repeated with its idempotency key. `runs` are its runs before that, `starts` all starts of the
/// fake agent for it, before and after.
pub(super) fn judge_repetition(
    client: &ClientKnowledge,
    runs: &[RunAfterRestart],
    starts: (&[AgentStart], &[AgentStart]),
    repeated: &Received,
) -> Vec<AnswerFinding> {
    let mut findings = Vec::new();
    let (before, after) = (starts.0.len(), starts.1.len());
    let recorded = runs.iter().find(|run| run.state.is_some());
    // A request that was never recorded may run again, once.
    let may_run = !client.complete && recorded.is_none();
    if after > before + usize::from(may_run) {
        let state = recorded.and_then(|run| run.state.as_deref()).unwrap_or("missing");
        let what = format!("the key ran again: {before} starts of the CLI, then {after}; its run was {state}");
        findings.push(AnswerFindingKind::RanTwice.finding(what));
    }
    if starts.1.iter().any(|start| !start.alone) {
        findings.push(AnswerFindingKind::RanTwice.finding("two processes answered the same key at the same time"));
    }
    let known = client.run.as_deref().or_else(|| recorded.map(|run| run.id.as_str()));
    if let (Some(known), Some(run)) = (known, repeated.run.as_deref())
        && !may_run
        && known != run
    {
        findings.push(AnswerFindingKind::RanTwice.finding(format!("the key was run {known}, and is now run {run}")));
    }
    let finished = recorded.is_some_and(|run| run.state.as_deref() == Some("finished"));
    let interrupted = recorded.is_some_and(|run| run.state.as_deref() == Some("interrupted"));
    let reply = describe(repeated);
    if (client.complete || finished) && !repeated.is_complete() {
        findings.push(AnswerFindingKind::WrongRow.finding(format!("the answer is not replayed for its key: {reply}")));
    } else if (client.complete || finished) && !repeated.replayed && after == before {
        findings.push(AnswerFindingKind::WrongRow.finding(format!("a replay that does not say so: {reply}")));
    } else if may_run && !repeated.is_complete() {
        findings.push(AnswerFindingKind::WrongRow.finding(format!("the repeated request has no answer: {reply}")));
    } else if interrupted && !client.complete && repeated.is_complete() {
        let what = format!("the run of the key was interrupted, and the repeated request has an answer: {reply}");
        findings.push(AnswerFindingKind::Contradiction.finding(what));
    }
    let printed = before.checked_sub(1).and_then(|last| starts.1.get(last)).map(|start| &start.answer);
    let first = client.text.as_ref().or(printed);
    if !may_run && repeated.is_complete() && repeated.text.as_ref() != first {
        findings
            .push(AnswerFindingKind::WrongRow.finding(format!("a replay with another text than {first:?}: {reply}")));
    }
    findings
}

/// The session that a client has from a complete answer.
#[derive(Debug, Clone)]
pub(super) struct KnownConversation {
    /// The gateway's id.
    pub(super) session: String,
    /// The CLI's own id.
    pub(super) native: String,
}

/// Judges the next turn of a session. `starts` are the starts of the fake agent for this turn.
pub(super) fn judge_next_turn(
    conversation: &KnownConversation,
    starts: &[AgentStart],
    next: &Received,
) -> Vec<AnswerFinding> {
    let KnownConversation { session, native } = conversation;
    let mut findings = Vec::new();
    let resumed_ids: Vec<&str> = starts.iter().filter_map(|start| start.resume.as_deref()).collect();
    let reply = describe(next);
    if let Some(foreign) = resumed_ids.iter().find(|id| **id != native.as_str()) {
        let whose = if *foreign == session.as_str() { "the gateway's own id" } else { "an unknown id" };
        let what = format!("the CLI was started with --resume {foreign}, {whose}, instead of {native}: {reply}");
        findings.push(AnswerFindingKind::IdConfused.finding(what));
    }
    let natively = resumed_ids.contains(&native.as_str());
    let says_resumed = next.resumption["resumed"] == true;
    if says_resumed && !natively {
        findings
            .push(AnswerFindingKind::IdConfused.finding(format!("the answer says resumed, which is untrue: {reply}")));
    }
    if natively && next.is_complete() && next.resumption["native"] != native.as_str() {
        findings
            .push(AnswerFindingKind::IdConfused.finding(format!("the answer names another id than {native}: {reply}")));
    }
    let lost = if !next.is_complete() {
        Some("its next turn has no answer")
    } else if !natively {
        Some("its next turn started a new conversation")
    } else if starts.len() > 1 {
        Some("its next turn was started more than once")
    } else if !says_resumed {
        Some("its next turn resumed it, but the answer does not say so")
    } else if next.session.as_ref() != Some(session) {
        Some("its next turn continues under another id")
    } else {
        None
    };
    findings
        .extend(lost.map(|why| AnswerFindingKind::LostSession.finding(format!("session {session}: {why}: {reply}"))));
    findings
}

fn describe(reply: &Received) -> String {
    let Received { end, status, run, resumption, text, error, .. } = reply;
    let mut words = vec![format!("{end:?}, status {status}")];
    words.extend(run.as_ref().map(|run| format!("run {run}")));
    words.extend((!resumption.is_null()).then(|| format!("session {resumption}")));
    words.extend(text.as_ref().map(|text| format!("text {text:?}")));
    words.extend((!error.is_empty()).then(|| error.chars().take(MAX_ERROR_CHARS).collect()));
    words.join(", ")
}

#[cfg(test)]
#[path = "later_verdict_tests.rs"]
mod tests;
