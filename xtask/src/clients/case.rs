//! Cases of the lab, and the verdict on what a client has shown. Pure: no processes, no network.

use serde::Deserialize;

use super::model_script::CaseWords;
use super::row::{ClientRow, TimeoutBehaviour};
use super::script::ScriptReply;
use super::tool_case::{LabObservation, tool_verdict};

/// One column of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LabCase {
    Models,
    Whole,
    Stream,
    Memory,
    WrongKey,
    UnknownModel,
    Failing,
    Cancel,
    Timeout,
    Tools,
    Schema,
    Edit,
}

/// A run of the gateway, as `GET /v1/runs` lists it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct LabRun {
    pub(super) id: String,
    pub(super) state: String,
    /// Client and purpose, if the gateway took the request for a side request, such as one for a title.
    #[serde(default)]
    pub(super) side: Option<String>,
    #[serde(default)]
    pub(super) provider: Option<String>,
}

impl LabRun {
    pub(super) fn is_active(&self) -> bool {
        self.state == "queued" || self.state == "running"
    }
}

impl LabCase {
    pub(super) const ALL: [Self; 12] = [
        Self::Models,
        Self::Whole,
        Self::Stream,
        Self::Memory,
        Self::WrongKey,
        Self::UnknownModel,
        Self::Failing,
        Self::Cancel,
        Self::Timeout,
        Self::Tools,
        Self::Schema,
        Self::Edit,
    ];

    /// Name in the protocol with the scripts and in `clients.toml`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::Whole => "whole",
            Self::Stream => "stream",
            Self::Memory => "memory",
            Self::WrongKey => "wrong_key",
            Self::UnknownModel => "unknown_model",
            Self::Failing => "failing",
            Self::Cancel => "cancel",
            Self::Timeout => "timeout",
            Self::Tools => "tools",
            Self::Schema => "schema",
            Self::Edit => "edit",
        }
    }

    /// Heading in the matrix.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::Whole => "whole",
            Self::Stream => "stream",
            Self::Memory => "memory",
            Self::WrongKey => "wrong key",
            Self::UnknownModel => "unknown model",
            Self::Failing => "failing CLI",
            Self::Cancel => "cancel",
            Self::Timeout => "time-out",
            Self::Tools => "tools",
            Self::Schema => "schema",
            Self::Edit => "edit",
        }
    }

    /// Model that the client asks for.
    pub(super) fn model(self) -> &'static str {
        match self {
            Self::Models | Self::Whole | Self::Stream | Self::Memory | Self::WrongKey => "lab",
            Self::UnknownModel => "no-such-model",
            Self::Failing => "lab-failing",
            Self::Cancel => "lab-endless",
            Self::Timeout => "lab-slow",
            Self::Tools | Self::Schema => "lab-tools",
            Self::Edit => "lab-edit",
        }
    }

    /// Whether a real CLI answers, which the mock LLM tells what to do.
    pub(super) fn needs_real_cli(self) -> bool {
        matches!(self, Self::Tools | Self::Schema | Self::Edit)
    }

    /// Messages that the user sends, one after the other.
    pub(super) fn prompts(self, word: &str) -> Vec<String> {
        match self {
            Self::Memory => vec![format!("Remember the secret word: {word}."), "What was the secret word?".to_owned()],
            Self::Tools => vec![format!("Ask the relay in the matter of {word}, and report.")],
            Self::Schema => vec![format!("Describe the lighthouse in the matter of {word}.")],
            Self::Edit => vec![format!("Change the colour of the lighthouse in README.md in the matter of {word}.")],
            Self::Models
            | Self::Whole
            | Self::Stream
            | Self::WrongKey
            | Self::UnknownModel
            | Self::Failing
            | Self::Cancel
            | Self::Timeout => vec![format!("Say the code word: {word}.")],
        }
    }
}

/// Returns what is wrong with the behaviour of a client in a case.
pub(super) fn verdict(
    case: LabCase,
    row: &ClientRow,
    words: &CaseWords,
    reply: &ScriptReply,
    seen: &LabObservation,
) -> Result<(), String> {
    let (word, runs) = (&words.word, &seen.runs);
    let answer = format!("The code word is {word} and the fake CLI says so.");
    let turns = runs.iter().filter(|run| run.side.is_none()).count();
    let expect_runs = |count: usize| match turns {
        // A client may be stopped after its side request, and before its main one.
        0 if case == LabCase::Cancel && !runs.is_empty() => Ok(()),
        _ if (count.min(1)..=count * (1 + row.side_requests)).contains(&turns) => Ok(()),
        _ => Err(format!("{turns} runs instead of {count}; the client shows: {}", shown(reply))),
    };
    match case {
        LabCase::Models => {
            succeeded(reply)?;
            let listed = reply.detail.split_whitespace().any(|model| model == "lab" || model == "lab:latest");
            if listed { Ok(()) } else { Err(format!("lab is not among the models: {}", shown(reply))) }
        }
        LabCase::Whole => {
            contains(reply, &answer)?;
            expect_runs(1)
        }
        LabCase::Stream => {
            contains(reply, &answer)?;
            if reply.deltas.is_some_and(|deltas| deltas < 3) {
                return Err(format!("only {} deltas", reply.deltas.unwrap_or(0)));
            }
            expect_runs(1)
        }
        LabCase::Memory => {
            contains(reply, &format!("The word was {word}, as I know"))?;
            expect_runs(2)
        }
        LabCase::WrongKey => {
            failed(reply, &["Incorrect API key", "401"])?;
            expect_runs(0)
        }
        LabCase::UnknownModel => {
            failed(reply, &["Unknown model", "no-such-model"])?;
            expect_runs(0)
        }
        LabCase::Failing => {
            failed(reply, &["lighthouse keeper"])?;
            expect_runs(1)
        }
        LabCase::Cancel => {
            succeeded(reply)?;
            if !runs.iter().any(|run| run.state == "cancelled") {
                let states: Vec<&str> = runs.iter().map(|run| run.state.as_str()).collect();
                return Err(format!("no run is cancelled: {states:?}"));
            }
            expect_runs(1)
        }
        LabCase::Timeout => {
            expect_runs(1)?;
            match row.timeout {
                TimeoutBehaviour::Repeats => contains(reply, &answer),
                TimeoutBehaviour::GivesUp => failed(reply, &[""]),
            }
        }
        LabCase::Tools | LabCase::Schema | LabCase::Edit => tool_verdict(case, row, words, reply, seen),
    }
}

pub(super) fn succeeded(reply: &ScriptReply) -> Result<(), String> {
    if reply.ok { Ok(()) } else { Err(shown(reply)) }
}

pub(super) fn contains(reply: &ScriptReply, expected: &str) -> Result<(), String> {
    succeeded(reply)?;
    // Terminal programs break lines and indent them.
    let text = reply.detail.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.contains(expected) { Ok(()) } else { Err(format!("the answer is not {expected:?}: {}", shown(reply))) }
}

/// Checks that the client reports an error with one of these wordings.
fn failed(reply: &ScriptReply, wordings: &[&str]) -> Result<(), String> {
    if reply.ok {
        return Err(format!("no error; the client shows: {}", shown(reply)));
    }
    let text = reply.detail.split_whitespace().collect::<Vec<_>>().join(" ");
    if wordings.iter().any(|wording| text.contains(wording)) {
        return Ok(());
    }
    Err(format!("the error does not say {:?}: {}", wordings[0], shown(reply)))
}

/// The beginning of what a client has shown, on one line.
pub(super) fn shown(reply: &ScriptReply) -> String {
    const MAX_SHOWN_CHARS: usize = 600;
    let text = reply.detail.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(ok: bool, detail: &str) -> ScriptReply {
        ScriptReply { ok, detail: detail.to_owned(), ..ScriptReply::default() }
    }

    fn runs(states: &[&str]) -> LabObservation {
        let run = |state: &&str| LabRun { id: String::new(), state: (*state).to_owned(), side: None, provider: None };
        LabObservation { runs: states.iter().map(run).collect(), ..LabObservation::default() }
    }

    fn words() -> CaseWords {
        CaseWords { word: "owl".to_owned(), token: String::new() }
    }

    fn row(timeout: TimeoutBehaviour, side_requests: usize) -> ClientRow {
        ClientRow { timeout, side_requests, ..ClientRow::default() }
    }

    #[test]
    fn verdict_depends_on_content_and_number_of_runs() {
        let answer = "The code word is owl and\n  the fake CLI says so.";
        let known = "The word was owl, as I know from the session.";
        let keyless = "500 CLI failed: Not logged in: the lighthouse keeper has no key";
        for (case, reply, states, passes) in [
            (LabCase::Models, reply(true, "agent lab lab-slow"), &[][..], true),
            (LabCase::Models, reply(true, "agent lab-slow"), &[], false),
            (LabCase::Whole, reply(true, answer), &["finished"], true),
            (LabCase::Whole, reply(true, answer), &["finished", "finished"], false),
            (LabCase::Whole, reply(true, "The code word is crow."), &["finished"], false),
            (LabCase::Memory, reply(true, known), &["finished", "finished"], true),
            (LabCase::Memory, reply(true, "I know of no word."), &["finished", "finished"], false),
            (LabCase::WrongKey, reply(false, "Incorrect API key provided"), &[], true),
            (LabCase::WrongKey, reply(false, "connection refused"), &[], false),
            (LabCase::WrongKey, reply(true, answer), &[], false),
            (LabCase::UnknownModel, reply(false, "Unknown model"), &[], true),
            (LabCase::Failing, reply(false, keyless), &["failed"], true),
            (LabCase::Failing, reply(false, keyless), &["failed", "failed", "failed"], false),
            (LabCase::Cancel, reply(true, ""), &["cancelled"], true),
            (LabCase::Cancel, reply(true, ""), &["running"], false),
            (LabCase::Timeout, reply(true, answer), &["finished"], true),
            (LabCase::Timeout, reply(false, "timed out"), &["cancelled"], false),
            (LabCase::Timeout, reply(true, answer), &["cancelled", "finished"], false),
        ] {
            let result = verdict(case, &row(TimeoutBehaviour::Repeats, 0), &words(), &reply, &runs(states));
            assert_eq!(result.is_ok(), passes, "{case:?} {reply:?} {states:?}: {result:?}");
        }
    }

    #[test]
    fn side_requests_of_a_client_are_allowed_and_not_required() {
        let answer = reply(true, "The code word is owl and the fake CLI says so.");
        for (states, passes) in
            [(&["finished"][..], true), (&["finished"; 2], true), (&["finished"; 3], false), (&[], false)]
        {
            let row = row(TimeoutBehaviour::Repeats, 1);
            assert_eq!(verdict(LabCase::Whole, &row, &words(), &answer, &runs(states)).is_ok(), passes, "{states:?}");
        }
    }

    #[test]
    fn client_that_gives_up_after_a_time_out_must_show_an_error() {
        let row = row(TimeoutBehaviour::GivesUp, 0);
        let result = |reply| verdict(LabCase::Timeout, &row, &words(), &reply, &runs(&["cancelled"]));
        assert_eq!(result(reply(false, "timed out")), Ok(()));
        assert!(result(reply(true, "The code word is owl and the fake CLI says so.")).is_err());
    }
}
