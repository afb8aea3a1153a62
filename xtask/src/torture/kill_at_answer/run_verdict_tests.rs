//! Each way in which a row or a log can be wrong is found, and a right one is not.

use serde_json::json;

use super::*;

fn client(complete: bool) -> ClientKnowledge {
    let text = complete.then(|| "a b".to_owned());
    ClientKnowledge { complete, run: Some("r".into()), session: Some("s".into()), text }
}

fn start() -> AgentStart {
    AgentStart { work: "w".into(), resume: None, native: "n".into(), answer: "a b".into(), alone: true }
}

fn log(end: LogEnd) -> LogAfterRestart {
    LogAfterRestart { end, text: "a b".into(), gap: None }
}

fn finished() -> LogAfterRestart {
    log(LogEnd::Finished("a b".into()))
}

fn run(state: Option<&str>, log: LogAfterRestart) -> RunAfterRestart {
    RunAfterRestart {
        id: "r".into(),
        state: state.map(str::to_owned),
        session: Some("s".into()),
        listed: state.is_some(),
        log,
    }
}

fn kinds(client: &ClientKnowledge, runs: &[RunAfterRestart], starts: &[AgentStart]) -> Vec<AnswerFindingKind> {
    judge_runs(client, runs, starts).into_iter().map(|finding| finding.kind).collect()
}

const WRONG: [AnswerFindingKind; 1] = [AnswerFindingKind::WrongRow];

#[test]
fn complete_answer_needs_a_finished_run_with_the_same_answer() {
    assert_eq!(kinds(&client(true), &[run(Some("finished"), finished())], &[start()]), []);
    let without_deltas = LogAfterRestart { text: String::new(), ..finished() };
    assert_eq!(kinds(&client(true), &[run(Some("finished"), without_deltas)], &[start()]), []);
    for wrong in [
        run(None, LogAfterRestart::default()),
        run(Some("interrupted"), log(LogEnd::Failed)),
        run(Some("interrupted"), finished()),
        run(Some("running"), finished()),
        run(Some("queued"), finished()),
        run(Some("failed"), log(LogEnd::Failed)),
        run(Some("finished"), log(LogEnd::Missing)),
        run(Some("finished"), log(LogEnd::Failed)),
        run(Some("finished"), log(LogEnd::Finished("a".into()))),
        run(Some("finished"), LogAfterRestart { text: "a ".into(), ..finished() }),
        run(Some("finished"), LogAfterRestart { gap: Some(1), ..finished() }),
        RunAfterRestart { session: None, ..run(Some("finished"), finished()) },
        RunAfterRestart { listed: false, ..run(Some("finished"), finished()) },
    ] {
        assert_eq!(kinds(&client(true), std::slice::from_ref(&wrong), &[start()]), WRONG, "{wrong:?}");
    }
    let nameless = ClientKnowledge { run: None, ..client(true) };
    assert_eq!(kinds(&nameless, &[run(Some("finished"), finished())], &[start()]), WRONG);
}

#[test]
fn answer_without_text_is_compared_with_what_the_agent_printed() {
    let client = ClientKnowledge { text: None, ..client(true) };
    assert_eq!(kinds(&client, &[run(Some("finished"), finished())], &[start()]), []);
    assert_eq!(kinds(&client, &[run(Some("finished"), log(LogEnd::Finished("b".into())))], &[start()]), WRONG);
}

#[test]
fn text_that_the_agent_did_not_print_is_wrong() {
    let other = AgentStart { answer: "c".into(), ..start() };
    assert_eq!(kinds(&client(true), &[run(Some("finished"), finished())], &[other]), WRONG);
}

#[test]
fn incomplete_answer_may_be_interrupted_or_finished_but_not_with_another_text() {
    for right in [run(Some("interrupted"), log(LogEnd::Failed)), run(Some("finished"), finished())] {
        assert_eq!(kinds(&client(false), std::slice::from_ref(&right), &[start()]), [], "{right:?}");
    }
    for wrong in [
        run(Some("finished"), log(LogEnd::Finished("a".into()))),
        run(Some("finished"), log(LogEnd::Failed)),
        run(Some("interrupted"), log(LogEnd::Missing)),
        run(Some("running"), log(LogEnd::Missing)),
        run(Some("failed"), log(LogEnd::Failed)),
        run(Some("cancelled"), log(LogEnd::Failed)),
    ] {
        assert_eq!(kinds(&client(false), std::slice::from_ref(&wrong), &[start()]), WRONG, "{wrong:?}");
    }
}

#[test]
fn interrupted_run_whose_log_has_an_answer_is_a_contradiction() {
    let run = run(Some("interrupted"), finished());
    assert_eq!(kinds(&client(false), &[run], &[start()]), [AnswerFindingKind::Contradiction]);
}

#[test]
fn run_may_be_missing_only_if_the_client_does_not_know_it() {
    let missing = || run(None, LogAfterRestart::default());
    assert_eq!(kinds(&client(false), &[missing()], &[start()]), WRONG);
    let unknown = ClientKnowledge { run: None, ..client(false) };
    assert_eq!(kinds(&unknown, &[missing()], &[]), []);
    assert_eq!(kinds(&unknown, &[], &[start()]), []);
}

#[test]
fn two_runs_or_two_starts_for_one_request_are_found() {
    let right = run(Some("finished"), finished());
    let second = RunAfterRestart { id: "q".into(), ..right.clone() };
    assert_eq!(kinds(&client(true), &[right.clone(), second], &[start()]), [AnswerFindingKind::RanTwice]);
    assert_eq!(kinds(&client(true), std::slice::from_ref(&right), &[start(), start()]), [AnswerFindingKind::RanTwice]);
    assert_eq!(kinds(&client(true), &[right], &[]), [AnswerFindingKind::Broken]);
}

#[test]
fn log_is_read_from_its_frames() {
    let frames = [
        json!({"seq": 0, "event": {"type": "text", "delta": "a "}}),
        json!({"seq": 1, "event": {"type": "text", "delta": "b"}}),
        json!({"seq": 2, "event": {"type": "finished", "content": "a b"}}),
    ];
    assert_eq!(LogAfterRestart::parse(&frames), finished());
    assert_eq!(LogAfterRestart::parse(&frames[..2]).end, LogEnd::Missing);
    assert_eq!(LogAfterRestart::parse(&frames[1..]).gap, Some(0));
    assert_eq!(LogAfterRestart::parse(&[]), LogAfterRestart::default());
    assert_eq!(LogAfterRestart::parse(&[json!({"seq": 0, "event": {"type": "failed"}})]).end, LogEnd::Failed);
}
