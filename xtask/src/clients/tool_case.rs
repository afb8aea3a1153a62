//! Verdicts on the cases in which a real CLI works with tools of the client or answers in JSON. Pure, as those of `case.rs`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::case::{LabCase, LabRun, contains, shown, succeeded};
use super::model_script::{CaseWords, EDITED, FIRST_TEXT, REPORT, typed_answer};
use super::row::{ClientRow, ToolLoop};
use super::script::ScriptReply;
use crate::conformance::environment::README;

/// State of the gateway and of the files after a case.
#[derive(Debug, Clone, Default)]
pub(super) struct LabObservation {
    pub(super) runs: Vec<LabRun>,
    /// Processes of the real CLI that were started with tools of the client.
    pub(super) processes: usize,
    /// `README.md` in the client's repository.
    pub(super) client_readme: String,
    /// `README.md` in the folder in which the CLI works.
    pub(super) cli_readme: String,
}

/// Returns what is wrong in one of the cases *tools*, *schema* and *edit*.
pub(super) fn tool_verdict(
    case: LabCase,
    row: &ClientRow,
    words: &CaseWords,
    reply: &ScriptReply,
    seen: &LabObservation,
) -> Result<(), String> {
    succeeded(reply)?;
    went_through(&row.cli, &seen.runs, reply)?;
    match case {
        LabCase::Schema => {
            let object: Value =
                serde_json::from_str(&reply.detail).map_err(|_| format!("no JSON: {}", shown(reply)))?;
            let expected = typed_answer(row, &words.token);
            if object == expected { Ok(()) } else { Err(format!("not {expected}: {object}")) }
        }
        LabCase::Edit => {
            contains(reply, EDITED)?;
            let expected = README.replace("grey", &words.token);
            if seen.client_readme != expected {
                return Err(format!("README.md is not edited: {:?}", seen.client_readme));
            }
            if seen.cli_readme != README {
                return Err(format!("the CLI has edited its own folder: {:?}", seen.cli_readme));
            }
            one_process(seen)
        }
        LabCase::Tools
        | LabCase::Models
        | LabCase::Whole
        | LabCase::Stream
        | LabCase::Memory
        | LabCase::WrongKey
        | LabCase::UnknownModel
        | LabCase::Failing
        | LabCase::Cancel
        | LabCase::Timeout => {
            contains(reply, REPORT)?;
            let token = &words.token;
            if reply.calls != Some(2) || reply.detail.matches(token.as_str()).count() < 2 {
                return Err(format!("{:?} calls of the tool instead of 2: {}", reply.calls, shown(reply)));
            }
            contains(reply, &format!("{token}-{FIRST_TEXT}"))?;
            // Results continue the turn; prompts start another one.
            if row.tool_loop == ToolLoop::Results { one_process(seen) } else { Ok(()) }
        }
    }
}

/// Checks that one process of the CLI has made all calls.
fn one_process(seen: &LabObservation) -> Result<(), String> {
    match seen.processes {
        1 => Ok(()),
        count => Err(format!("{count} processes of the CLI instead of 1")),
    }
}

/// Checks that this CLI has answered.
fn went_through(cli: &str, runs: &[LabRun], reply: &ScriptReply) -> Result<(), String> {
    let providers: BTreeSet<&str> = runs.iter().map(|run| run.provider.as_deref().unwrap_or("none")).collect();
    if providers == BTreeSet::from([cli]) && runs.iter().any(|run| run.state == "finished" || run.state == "parked") {
        return Ok(());
    }
    let states: Vec<&str> = runs.iter().map(|run| run.state.as_str()).collect();
    Err(format!("runs {states:?} of {providers:?} instead of {cli}; the client shows: {}", shown(reply)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> CaseWords {
        CaseWords { word: "owl".to_owned(), token: "heron7".to_owned() }
    }

    fn reply(detail: &str, calls: u64) -> ScriptReply {
        ScriptReply { ok: true, detail: detail.to_owned(), calls: Some(calls), ..ScriptReply::default() }
    }

    fn seen(provider: &str, processes: usize) -> LabObservation {
        let run = LabRun {
            id: "1".to_owned(),
            state: "finished".to_owned(),
            side: None,
            provider: Some(provider.to_owned()),
        };
        let (client_readme, cli_readme) = (README.replace("grey", "heron7"), README.to_owned());
        LabObservation { runs: vec![run], processes, client_readme, cli_readme }
    }

    fn row() -> ClientRow {
        ClientRow { cli: "codex".to_owned(), ..ClientRow::default() }
    }

    #[test]
    fn tools_need_both_results_and_one_process_of_the_right_cli() {
        let report = "The relay says heron7-heron7-first.";
        for (reply, seen, passes) in [
            (reply(report, 2), seen("codex", 1), true),
            (reply(report, 2), seen("claude", 1), false),
            (reply(report, 2), seen("codex", 2), false),
            (reply(report, 1), seen("codex", 1), false),
            (reply("The relay says heron7-first.", 2), seen("codex", 1), false),
            (reply("The relay says nothing.", 2), seen("codex", 1), false),
        ] {
            let result = tool_verdict(LabCase::Tools, &row(), &words(), &reply, &seen);
            assert_eq!(result.is_ok(), passes, "{reply:?} {seen:?}: {result:?}");
        }
    }

    #[test]
    fn typed_answer_must_be_exact() {
        let verdict =
            |detail: &str| tool_verdict(LabCase::Schema, &row(), &words(), &reply(detail, 0), &seen("codex", 1));
        assert_eq!(verdict(r#"{"height": 41, "keeper": "heron7", "lamps": ["red", "green"]}"#), Ok(()));
        assert!(verdict(r#"{"height": "41", "keeper": "heron7", "lamps": ["red", "green"]}"#).is_err());
        assert!(verdict("The keeper is heron7.").is_err());
    }

    #[test]
    fn edit_must_be_in_the_repository_of_the_client_only() {
        let verdict = |seen: &LabObservation| tool_verdict(LabCase::Edit, &row(), &words(), &reply(EDITED, 0), seen);
        assert_eq!(verdict(&seen("codex", 1)), Ok(()));
        assert!(verdict(&LabObservation { client_readme: README.to_owned(), ..seen("codex", 1) }).is_err());
        assert!(verdict(&LabObservation { cli_readme: README.replace("grey", "heron7"), ..seen("codex", 1) }).is_err());
    }
}
