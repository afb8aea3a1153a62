//! Each broken promise about keys and sessions is found, and a kept one is not.

use serde_json::{Value, json};

use super::super::received::ReceivedEnd;
use super::super::run_verdict::LogAfterRestart;
use super::*;

use AnswerFindingKind::{Contradiction, IdConfused, LostSession, RanTwice, WrongRow};

fn client(complete: bool) -> ClientKnowledge {
    let known = complete.then(|| "r".to_owned());
    ClientKnowledge { complete, run: known, session: None, text: complete.then(|| "a".to_owned()) }
}

fn run(state: &str) -> RunAfterRestart {
    let state = Some(state.to_owned());
    RunAfterRestart { id: "r".into(), state, session: None, listed: true, log: LogAfterRestart::default() }
}

fn start(resume: Option<&str>) -> AgentStart {
    let resume = resume.map(str::to_owned);
    AgentStart { work: "w".into(), resume, native: "n".into(), answer: "a".into(), alone: true }
}

fn answer(run: &str) -> Received {
    Received {
        end: ReceivedEnd::Complete,
        status: 200,
        run: Some(run.into()),
        text: Some("a".into()),
        replayed: true,
        ..Received::default()
    }
}

fn failure(run: Option<&str>) -> Received {
    Received { end: ReceivedEnd::Failed, status: 500, run: run.map(str::to_owned), ..Received::default() }
}

/// Kinds of the findings after a repetition that made the agent start `more` times.
fn repeated(
    complete: bool,
    runs: &[RunAfterRestart],
    before: usize,
    more: usize,
    reply: &Received,
) -> Vec<AnswerFindingKind> {
    let starts = vec![start(None); before + more];
    let findings = judge_repetition(&client(complete), runs, (&starts[..before], &starts), reply);
    findings.into_iter().map(|finding| finding.kind).collect()
}

#[test]
fn complete_answer_is_replayed_from_the_same_run_without_a_start() {
    assert_eq!(repeated(true, &[run("finished")], 1, 0, &answer("r")), []);
    assert_eq!(repeated(true, &[run("finished")], 1, 1, &answer("r")), [RanTwice]);
    assert_eq!(repeated(true, &[run("finished")], 1, 1, &answer("q")), [RanTwice, RanTwice]);
    assert_eq!(repeated(true, &[], 1, 1, &Received { replayed: false, ..answer("q") }), [RanTwice, RanTwice]);
    assert_eq!(repeated(true, &[run("interrupted")], 1, 0, &failure(Some("r"))), [WrongRow]);
    assert_eq!(repeated(true, &[run("finished")], 1, 0, &Received { replayed: false, ..answer("r") }), [WrongRow]);
    let other_text = Received { text: Some("b".into()), ..answer("r") };
    assert_eq!(repeated(true, &[run("finished")], 1, 0, &other_text), [WrongRow]);
}

#[test]
fn interrupted_run_is_replayed_as_a_failure() {
    assert_eq!(repeated(false, &[run("interrupted")], 1, 0, &failure(Some("r"))), []);
    assert_eq!(repeated(false, &[run("interrupted")], 1, 1, &failure(Some("r"))), [RanTwice]);
    assert_eq!(repeated(false, &[run("interrupted")], 1, 0, &answer("r")), [Contradiction]);
    let again = repeated(false, &[run("interrupted")], 0, 1, &answer("q"));
    assert_eq!(again, [RanTwice, RanTwice, Contradiction, WrongRow]);
}

#[test]
fn run_that_finished_unseen_is_replayed() {
    assert_eq!(repeated(false, &[run("finished")], 1, 0, &answer("r")), []);
    assert_eq!(repeated(false, &[run("finished")], 1, 0, &failure(Some("r"))), [WrongRow]);
    assert_eq!(repeated(false, &[run("finished")], 1, 1, &answer("r")), [RanTwice]);
}

#[test]
fn request_that_was_never_recorded_runs_once() {
    let fresh = Received { replayed: false, ..answer("q") };
    assert_eq!(repeated(false, &[], 0, 1, &fresh), []);
    assert_eq!(repeated(false, &[], 1, 1, &fresh), []);
    assert_eq!(repeated(false, &[], 0, 2, &fresh), [RanTwice]);
    assert_eq!(repeated(false, &[], 0, 1, &failure(None)), [WrongRow]);
}

#[test]
fn two_processes_at_the_same_time_are_found() {
    let starts = [start(None), AgentStart { alone: false, ..start(None) }];
    let fresh = Received { replayed: false, ..answer("q") };
    let findings = judge_repetition(&client(false), &[], (&starts[..1], &starts), &fresh);
    assert_eq!(findings.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [RanTwice]);
}

fn next_turn(starts: &[AgentStart], resumption: &Value, reply: Received) -> Vec<AnswerFindingKind> {
    let conversation = KnownConversation { session: "s".into(), native: "n".into() };
    let next = Received { session: Some("s".into()), resumption: resumption.clone(), ..reply };
    judge_next_turn(&conversation, starts, &next).into_iter().map(|finding| finding.kind).collect()
}

#[test]
fn session_is_resumed_by_the_native_id() {
    let resumed = json!({"resumed": true, "native": "n"});
    assert_eq!(next_turn(&[start(Some("n"))], &resumed, answer("r")), []);
    assert_eq!(next_turn(&[start(Some("n")), start(None)], &resumed, answer("r")), [LostSession]);
    assert_eq!(next_turn(&[start(Some("n"))], &json!({"resumed": false, "native": "n"}), answer("r")), [LostSession]);
    assert_eq!(next_turn(&[start(Some("n"))], &json!({"resumed": true, "native": "s"}), answer("r")), [IdConfused]);
}

#[test]
fn session_that_starts_over_is_lost() {
    assert_eq!(next_turn(&[start(None)], &json!({"resumed": false, "native": "m"}), answer("r")), [LostSession]);
    assert_eq!(next_turn(&[], &Value::Null, failure(None)), [LostSession]);
    assert_eq!(
        next_turn(&[start(None)], &json!({"resumed": true, "native": "m"}), answer("r")),
        [IdConfused, LostSession]
    );
}

#[test]
fn foreign_id_is_confused_and_the_session_lost() {
    let resumed = json!({"resumed": true, "native": "s"});
    assert_eq!(next_turn(&[start(Some("s"))], &resumed, answer("r")), [IdConfused, IdConfused, LostSession]);
    let started_over = json!({"resumed": false, "native": "m"});
    assert_eq!(next_turn(&[start(Some("s")), start(None)], &started_over, answer("r")), [IdConfused, LostSession]);
    assert_eq!(next_turn(&[start(Some("s"))], &Value::Null, failure(None)), [IdConfused, LostSession]);
}

#[test]
fn session_under_another_id_is_lost() {
    let conversation = KnownConversation { session: "s".into(), native: "n".into() };
    let resumption = json!({"resumed": true, "native": "n"});
    let next = Received { session: Some("t".into()), resumption, ..answer("r") };
    let findings = judge_next_turn(&conversation, &[start(Some("n"))], &next);
    assert_eq!(findings.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [LostSession]);
}
